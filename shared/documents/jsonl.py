"""JSON Lines: one document a line, `text` required."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.documents.metadata import InvalidMetadata, language_code, metadata_of
from shared.documents.model import Block, Content, UnreadableDocument
from shared.documents.text import clean, one_line, paragraphs


@dataclass(frozen=True, slots=True)
class Record:
    """One line: `key` tells it apart within the file."""

    key: str
    url: str
    content: Content


def read_jsonl(text: str, path: Path) -> list[Record]:
    """All records of the file; one bad line refuses the file, or half of it would be missing unnoticed."""
    records: dict[str, Record] = {}
    for number, line in _lines(text):
        try:
            record = _record(line, number)
        except ValueError as error:
            raise UnreadableDocument(path, f"line {number}: {error}", "correct that line") from error
        if record.key in records:
            raise UnreadableDocument(path, f"line {number}: id {record.key!r} stood above", "make ids unique")
        records[record.key] = record
    return list(records.values())


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip())


def _record(line: str, number: int) -> Record:
    values = _object(line)
    text = clean(_string(values, "text", required=True))
    found = paragraphs(text)
    if not found:
        raise InvalidMetadata("text is empty")
    content = Content(
        blocks=tuple(Block(paragraph) for paragraph in found),
        title=one_line(clean(_string(values, "title"))) or _first_words(found[0]),
        language=language_code(values.get("lang") or values.get("language")),
        metadata=metadata_of(values),
    )
    return Record(key=clean(_key(values)) or str(number), url=clean(_string(values, "url")).strip(), content=content)


def _object(line: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except RecursionError:
        raise InvalidMetadata("JSON nested too deep") from None
    except ValueError as error:
        raise InvalidMetadata(f"not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise InvalidMetadata("not a JSON object")
    return values


def _string(values: dict[str, Any], key: str, *, required: bool = False) -> str:
    value = values.get(key)
    if value is None and not required:
        return ""
    if not isinstance(value, str):
        raise InvalidMetadata(f"{key} is missing" if value is None else f"{key} is not a string")
    return value


def _key(values: dict[str, Any]) -> str:
    value = values.get("id")
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise InvalidMetadata("id is neither a string nor a number")
    return "" if value is None else str(value).strip()


def _first_words(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= 80 else line[:80].rsplit(" ", 1)[0] + "…"
