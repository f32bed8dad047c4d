"""Which files `cairn ingest PATH...` means."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from shared.documents.model import UnreadableDocument

SUFFIXES: Final = (".md", ".markdown", ".html", ".htm", ".pdf", ".docx", ".txt", ".csv", ".tsv", ".jsonl")


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Files as given, directories searched for supported ones, in order and each once.

    Hidden files are passed over, and links to directories are not followed, so a loop of them can't trap it.
    """
    found = (file for path in paths for file in _files_of(path))
    return list({os.path.abspath(file): file for file in found}.values())  # noqa: PTH100 - resolve() would follow links


def _files_of(path: Path) -> Iterable[Path]:
    if path.is_dir():
        return sorted(_below(path))
    if not path.exists():
        raise UnreadableDocument(path, "there is no such file or directory", "check the path")
    return [path]


def _below(directory: Path) -> Iterator[Path]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in files:
            file = Path(parent, name)
            if not name.startswith(".") and file.suffix.lower() in SUFFIXES and file.is_file():
                yield file
