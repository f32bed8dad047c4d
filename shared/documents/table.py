"""Tables as pipe rows, which models and people read alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

_MAX_WIDTH: Final = 100
"""Rows are filled up to this many cells at most: one row of a million must not lengthen a million others."""


def pipe_rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """First row as header, separator, further rows. Cells are flattened and escaped, empty rows left out."""
    filled = [cells for row in rows if any(cells := [_cell(text) for text in row])]
    width = max((len(cells) for cells in filled), default=0)
    for number, cells in enumerate(filled):
        yield "| " + " | ".join(cells + [""] * (min(width, _MAX_WIDTH) - len(cells))) + " |"
        if number == 0:
            yield "|" + "---|" * max(min(width, _MAX_WIDTH), len(cells))


def flat(text: str) -> str:
    """`text` on one line."""
    return " ".join(text.split())


def _cell(text: str) -> str:
    return flat(text).replace("|", "\\|")
