"""Blocks too long for one passage, cut where it hurts least."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from semantic_text_splitter import TextSplitter

from shared.documents.model import Block
from shared.documents.settings import SplitSettings

_WORD_CHARS: Final = 100
"""A longer word may be cut anywhere."""
# The splitter's time grows with the square of the text: a 20 MB line would take it half a day.
_WINDOW_CHARS: Final = 20_000


def pieces(block: Block, settings: SplitSettings) -> list[str]:
    """The block's text in pieces of at most `max`; whole if it fits."""
    if len(block.text) <= settings.max:
        return [block.text]
    if block.kind == "table":
        return list(_cut_table(block.text, settings))
    if block.kind == "code":
        return list(_pack_lines(block.text.split("\n"), settings, room=settings.target))
    return _cut_text(block.text, settings)


def _cut_text(text: str, settings: SplitSettings) -> list[str]:
    # The splitter parts words at hyphens and between scripts: room is left to put them together again.
    slack = min(_WORD_CHARS, settings.max // 4)
    capacity = settings.max - slack
    splitter = TextSplitter((min(settings.target, capacity), capacity), overlap=settings.overlap)
    found: list[str] = []
    for window in _windows(text):
        spans = ((start, start + len(chunk)) for start, chunk in splitter.chunk_indices(window))
        found.extend(
            window[_word_start(window, begin, slack) : _word_start(window, end, slack)] for begin, end in spans
        )
    return [piece.strip() for piece in found if piece.strip()]


def _word_start(text: str, cut: int, reach: int) -> int:
    """Where the word begins that `cut` falls into; `cut` itself between words, and in words longer than `reach`."""
    for place in range(cut, max(cut - reach, 0) - 1, -1):
        if place in {0, len(text)} or text[place].isspace() or text[place - 1].isspace():
            return place
    return cut


def _windows(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _WINDOW_CHARS:
        half = start + _WINDOW_CHARS // 2
        limit = start + _WINDOW_CHARS
        cuts = (text.rfind(mark, half, limit) for mark in ("\n\n", "\n", ". ", " "))
        end = next((cut + 1 for cut in cuts if cut > 0), limit)
        yield text[start:end]
        start = end
    yield text[start:]


def _cut_table(text: str, settings: SplitSettings) -> Iterator[str]:
    """Rows, each part under the header again; a header too long to repeat counts as a row."""
    lines = text.split("\n")
    separator = next((index for index, line in enumerate(lines) if _is_separator(line)), 0)
    header, rows = lines[: separator + 1], lines[separator + 1 :]
    head = "\n".join(header)
    if len(head) > settings.target // 2:
        yield from _pack_lines(lines, settings, room=settings.target)
        return
    for part in _pack_lines(rows, settings, room=settings.target - len(head) - 1):
        yield f"{head}\n{part}" if len(head) + 1 + len(part) <= settings.max else part


def _is_separator(line: str) -> bool:
    return "-" in line and not line.strip().strip("|:- \t")


def _pack_lines(lines: list[str], settings: SplitSettings, *, room: int) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for line in lines:
        if held and size + len(line) + 1 > room:
            yield from _filled(held)
            held, size = [], 0
        if len(line) > room:
            yield from _filled(held)
            held, size = [], 0
            yield from _cut_text(line, settings)
        else:
            held.append(line)
            size += len(line) + 1
    yield from _filled(held)


def _filled(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield text
