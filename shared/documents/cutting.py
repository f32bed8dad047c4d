"""Blocks too long for one passage, cut where it hurts least."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from semantic_text_splitter import TextSplitter

from shared.documents.model import Block
from shared.documents.tokens import Count

JOINT_TOKENS: Final = 1
"""What the line breaks between two texts add, at most."""
_WORD_CHARS: Final = 100
"""A longer word may be cut anywhere."""
_WORD_TOKENS: Final = 30
_TOKEN_CHARS: Final = 12
"""A token counts for no more characters: blanks and unknown signs may cost none, but are text to carry all the same."""
# The splitter's time grows with the square of the text: a 20 MB line would take it half a day.
_WINDOW_CHARS: Final = 20_000


class Piece(NamedTuple):
    """Text for a passage, and its size in tokens."""

    text: str
    size: int


@dataclass(frozen=True, slots=True)
class Room:
    """What a passage may hold, in tokens, and how they are counted."""

    target: int
    max: int
    overlap: int
    count: Count

    def size(self, text: str) -> int:
        """Tokens of `text`. What is far too long is not counted: it gets a size beyond `max`."""
        least = -(-len(text) // _TOKEN_CHARS)
        return least if least > self.max else max(least, self.count(text))


def pieces(block: Block, room: Room) -> list[Piece]:
    """The block's text in pieces of at most `room.max`; whole if it fits."""
    size = room.size(block.text)
    if size <= room.max:
        return [Piece(block.text, size)]
    if block.kind == "table":
        return list(_cut_table(block.text, room))
    if block.kind == "code":
        return list(_pack_lines(block.text.split("\n"), room))
    return list(_cut_text(block.text, room))


def _cut_text(text: str, room: Room) -> Iterator[Piece]:
    for window in _windows(text, max(_WINDOW_CHARS, room.max * _TOKEN_CHARS)):
        yield from _cut_window(window.strip(), room)


def _cut_window(text: str, room: Room) -> Iterator[Piece]:
    """Cuts by characters, as many as make a passage here; a piece that is denser than its surroundings is cut again."""
    if not text:
        return
    size = max(-(-len(text) // _TOKEN_CHARS), room.count(text))
    if size <= room.max or len(text) == 1:
        yield Piece(text, size)
        return
    # The splitter could ask for tokens itself, but would have every character counted some fifteen times. It parts
    # words at hyphens and between scripts: some room is left to put them together again.
    capacity = max(1, len(text) * (room.max - min(_WORD_TOKENS, room.max // 4)) // size)
    target = min(max(1, len(text) * room.target // size), capacity)
    overlap = min(len(text) * room.overlap // size, target // 2)
    chunks = TextSplitter((target, capacity), overlap=overlap).chunk_indices(text)
    spans = [(_word_start(text, start), _word_start(text, start + len(chunk))) for start, chunk in chunks]
    # A single word may be too long: it must get shorter, or this would never end.
    is_one_word = (0, len(text)) in spans
    for (begin, end), (_, chunk) in zip(spans, chunks, strict=True):
        yield from _cut_window(chunk if is_one_word else text[begin:end].strip(), room)


def _word_start(text: str, cut: int) -> int:
    """Where the word begins that `cut` falls into; `cut` itself between words, and in words too long."""
    for place in range(cut, max(cut - _WORD_CHARS, 0) - 1, -1):
        if place in {0, len(text)} or text[place].isspace() or text[place - 1].isspace():
            return place
    return cut


def _windows(text: str, size: int) -> Iterator[str]:
    start = 0
    while len(text) - start > size:
        half = start + size // 2
        limit = start + size
        cuts = (text.rfind(mark, half, limit) for mark in ("\n\n", "\n", ". ", " "))
        end = next((cut + 1 for cut in cuts if cut > 0), limit)
        yield text[start:end]
        start = end
    yield text[start:]


def _cut_table(text: str, room: Room) -> Iterator[Piece]:
    """Rows, each part under the header again; a header too long to repeat counts as a row."""
    lines = text.split("\n")
    separator = next((index for index, line in enumerate(lines) if _is_separator(line)), 0)
    head = "\n".join(lines[: separator + 1])
    head_size = room.size(head) + JOINT_TOKENS
    if head_size > room.target // 2:
        yield from _pack_lines(lines, room)
        return
    below = replace(room, target=room.target - head_size, max=room.max - head_size)
    for part in _pack_lines(lines[separator + 1 :], below):
        yield Piece(f"{head}\n{part.text}", head_size + part.size)


def _is_separator(line: str) -> bool:
    return "-" in line and not line.strip().strip("|:- \t")


def _pack_lines(lines: list[str], room: Room) -> Iterator[Piece]:
    held: list[str] = []
    held_size = 0
    for line in lines:
        size = room.size(line) + JOINT_TOKENS
        if held and held_size + size > room.target:
            yield from _filled(held, held_size)
            held, held_size = [], 0
        if size > room.target:
            yield from _cut_text(line, room)
        else:
            held.append(line)
            held_size += size
    yield from _filled(held, held_size)


def _filled(lines: list[str], size: int) -> Iterator[Piece]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield Piece(text, size)
