"""Reading the files of an evaluation set line by line, so that every error names its line."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from shared.errors import PermanentError
from shared.runtime.delivery import explain

_T = TypeVar("_T", bound=BaseModel)


class InvalidDataset(PermanentError):
    """A file of an evaluation set can't be used; the text names the file, the line and what is wrong there."""

    @classmethod
    def at(cls, path: Path, line: int, reason: str) -> InvalidDataset:
        return cls(f"{path}, line {line}: {reason}")


def json_lines(path: Path, model: type[_T]) -> Iterator[tuple[int, _T]]:
    """Number (from 1) and content of every line that is not blank; `.gz` files are unpacked.

    Raises InvalidDataset for a line that is no JSON object of this form.
    """
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            try:
                yield number, model.model_validate_json(line)
            except ValidationError as error:
                raise InvalidDataset.at(path, number, explain(error)) from error


def tab_rows(path: Path, required: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Number (the header is 1) and fields of every row of a tab-separated file.

    Raises InvalidDataset where the header lacks a required column, or a row a field.
    """
    # QUOTE_NONE: ids may begin with a quotation mark, and BEIR quotes nothing.
    rows = csv.reader(_text(path).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(rows, [])
    if lacking := [name for name in required if name not in header]:
        raise InvalidDataset.at(path, 1, f"the header lacks {', '.join(lacking)}; it must be {' TAB '.join(required)}")
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise InvalidDataset.at(path, number, f"{len(row)} fields where the header has {len(header)}")
        yield number, dict(zip(header, row, strict=True))


def whole_number(path: Path, line: int, name: str, value: str) -> int:
    """The field as a number; `1.0` is 1. Raises InvalidDataset."""
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not number.is_integer():
        raise InvalidDataset.at(path, line, f"{name} is {value!r}, not a whole number")
    return int(number)


def fingerprint(files: Iterable[Path]) -> str:
    """16 hexadecimal digits over the files' contents; the same wherever they lie, packed or not."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(hashlib.sha256(_bytes(path)).digest())
    return digest.hexdigest()[:16]


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidDataset(f"{path}: not UTF-8 at byte {error.start}") from error


def _bytes(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError) as error:
        raise InvalidDataset(f"{path}: can't be read ({error})") from error
