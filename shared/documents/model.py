"""What reading a file gives: source documents made of blocks, or `UnreadableDocument`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from shared.errors import PermanentError

SPLITTER_VERSION: Final = "2"
"""Raised with every change of reading or splitting that alters passages: then all documents count as changed.

It is part of `SplitSettings.fingerprint`.
"""

SECTION_SEPARATOR: Final = " › "

BlockKind = Literal["text", "table", "code"]
MetadataValue = str | list[str]
Metadata = dict[str, MetadataValue]


class UnreadableDocument(PermanentError):
    """A file that can't be read as a document; the text names the file, the reason and the remedy."""

    def __init__(self, path: Path | str, reason: str, remedy: str) -> None:
        super().__init__(f"{path}: {reason}; {remedy}")
        self.path = Path(path)
        self._told = (path, reason, remedy)

    def __reduce__(self) -> tuple[type[UnreadableDocument], tuple[Path | str, str, str]]:
        # It comes from another process, and an exception is unpickled by its arguments.
        return type(self), self._told


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list, table or piece of code, with the place where it stands."""

    text: str
    section: str = ""
    """Heading path, outermost first."""
    anchor: str | None = None
    page: int | None = None
    """1-based."""
    kind: BlockKind = "text"


@dataclass(frozen=True, slots=True)
class Content:
    """What a format's reader finds in a file, before the file's own facts are added."""

    blocks: tuple[Block, ...]
    title: str = ""
    language: str = ""
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """One document as read; `content_hash` changes with what it says and who may read it.

    How it is split is not in the hash: whoever keeps passages keeps `split_hash`.
    """

    document_id: str
    title: str
    uri: str
    language: str
    metadata: Metadata
    content_hash: str
    blocks: tuple[Block, ...]


def hash_content(*, title: str, uri: str, language: str, metadata: Metadata, blocks: tuple[Block, ...]) -> str:
    """SHA-256, in hex, over everything the index keeps of a document."""
    digest = hashlib.sha256()
    facts = {"title": title, "uri": uri, "language": language, "metadata": metadata}
    digest.update(json.dumps(facts, sort_keys=True).encode())
    for block in blocks:
        digest.update(json.dumps([block.text, block.section, block.anchor, block.page, block.kind]).encode())
    return digest.hexdigest()
