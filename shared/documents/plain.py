"""Plain text: paragraphs, and a first line that may be a title."""

from __future__ import annotations

from typing import Final

from shared.documents.model import Block, Content
from shared.documents.text import paragraphs

_TITLE_CHARS: Final = 120
_ENDS_SENTENCE: Final = (".", ",", ";", ":", "!")


def read_plain(text: str) -> Content:
    """Paragraphs; a short first one on a line of its own is the title, too."""
    found = paragraphs(text)
    return Content(blocks=tuple(Block(paragraph) for paragraph in found), title=_title(found))


def _title(found: list[str]) -> str:
    if len(found) < 2:
        return ""
    first = found[0].strip()
    is_title = "\n" not in first and len(first) <= _TITLE_CHARS and not first.endswith(_ENDS_SENTENCE)
    return first if is_title else ""
