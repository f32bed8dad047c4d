"""Where in a document's headings one stands while reading it from top to bottom."""

from __future__ import annotations

from shared.documents.model import SECTION_SEPARATOR
from shared.documents.text import MAX_HEADING_CHARS


class Outline:
    """The open headings, outermost first. A heading closes all of its level and below."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str, str | None]] = []
        self.section = ""
        self.anchor: str | None = None
        """That of the innermost open heading that has one."""

    def open(self, level: int, title: str, anchor: str | None = None) -> None:
        self._open = [heading for heading in self._open if heading[0] < level]
        self._open.append((level, title, anchor))
        self.section = _path([title for _, title, _ in self._open if title])
        self.anchor = next((anchor for _, _, anchor in reversed(self._open) if anchor), None)


def _path(titles: list[str]) -> str:
    """The titles in a row; of a path too long to travel with passages the outer ones are left out."""
    path = SECTION_SEPARATOR.join(titles)
    return path if len(path) <= MAX_HEADING_CHARS or len(titles) == 1 else _path(titles[1:])
