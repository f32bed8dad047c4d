"""Lines of a PDF page made into paragraphs again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_PAGE_NUMBER: Final = re.compile(
    r"(?:page |seite |стр\. )?[–—-]?\s*\d{1,4}\s*[–—-]?(?:\s*(?:/|of|sur|из)\s*\d{1,4})?", re.I
)
_BULLET: Final = re.compile(r"[•‣◦▪●·–—*-]\s?\S|\(?\d{1,3}[.)]\s")
_ENDS_SENTENCE: Final = re.compile(r"[.!?:…][)»”\"’]*$")
_BROKEN_WORD: Final = re.compile(r"[^\W\d_][-\u00ad\u2010]$")
_BLANK: Final = re.compile(r"[ \t\u00a0]+")
_LEADER: Final = re.compile(r"(?:\s*\.){5,}\s*(?:\d{1,4}|[ivxlc]{1,7})?$")
_LEADER_REACH: Final = 200
"""Characters at a line's end in which dot leaders are looked for; the search takes the square of them."""
_FULL_LINE: Final = 0.85
"""Share of the page's longest line from which a line counts as wrapped, not ended."""
_CONTENTS_SHARE: Final = 0.4
"""Share of lines with dot leaders from which a page is a table of contents."""
_NUMBERING_CHARS: Final = 14
"""Length of what may stand before an outline title on the page: `Chapter 1.`, `1.3`."""
_HEADING_LINES: Final = 4


@dataclass(frozen=True, slots=True)
class PageHeading:
    """An entry of the outline that leads to a page."""

    level: int
    title: str


def page_lines(text: str) -> list[str]:
    """The page's lines without blanks around and a page number at its edge; blank ones part paragraphs."""
    lines = [_BLANK.sub(" ", line).strip() for line in text.split("\n")]
    filled = [index for index, line in enumerate(lines) if line]
    edges = {index for index in (filled[:1] + filled[-1:]) if _PAGE_NUMBER.fullmatch(lines[index])}
    kept = [line for index, line in enumerate(lines) if index not in edges and not _is_leader(line)]
    # A table of contents repeats the words of every question and answers none.
    is_contents = sum(1 for index in filled if _is_leader(lines[index])) > max(4, len(filled) * _CONTENTS_SHARE)
    return kept if any(kept) and not is_contents else []


def _is_leader(line: str) -> bool:
    return _LEADER.search(line[-_LEADER_REACH:]) is not None


def parts_of(lines: list[str], headings: list[PageHeading]) -> Iterator[tuple[PageHeading | None, list[str]]]:
    """Cuts the page where its headings stand, without them; a heading not found there begins where the last one did."""
    start, opened = 0, None
    for heading in headings:
        place = _find(lines, heading.title, start)
        begin, end = place or (start, start)
        yield opened, lines[start:begin]
        start, opened = end, heading
    yield opened, lines[start:]


def _find(lines: list[str], title: str, start: int) -> tuple[int, int] | None:
    wanted = _letters(title)
    if not wanted:
        return None
    for end in range(start, len(lines)):
        shown = ""
        for begin in range(end, max(end - _HEADING_LINES, start - 1), -1):
            shown = _letters(lines[begin]) + shown
            if shown.endswith(wanted) and len(shown) - len(wanted) <= _NUMBERING_CHARS:
                return begin, end + 1
    return None


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def join_lines(lines: list[str]) -> list[str]:
    """Paragraphs: wrapped lines joined and their broken words mended, short lines (tables, addresses) kept apart."""
    width = max((len(line) for line in lines), default=0)
    found: list[str] = []
    last = ""
    for line in lines:
        if line and (not last or (_ENDS_SENTENCE.search(last) and len(last) < width * _FULL_LINE)):
            found.append(line)
        elif line:
            found[-1] = _joined(found[-1], line, wrapped=_is_full(last, line, width))
        last = line
    return found


def _is_full(last: str, line: str, width: int) -> bool:
    """Whether the first word of `line` had no room behind `last`."""
    return len(last) + 1 + len(line.partition(" ")[0]) >= width * _FULL_LINE


def _joined(text: str, line: str, *, wrapped: bool) -> str:
    if not wrapped or _BULLET.match(line):
        return f"{text}\n{line}"
    if _BROKEN_WORD.search(text) and line[0].islower():
        return text[:-1] + line
    return f"{text} {line}"
