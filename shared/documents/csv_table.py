"""CSV and TSV: one table, whose first row is its header."""

from __future__ import annotations

import csv
import io
from itertools import islice
from typing import Final

from shared.documents.model import Block, Content
from shared.documents.table import pipe_rows

_DELIMITERS: Final = ("\t", ";", "|", ",")
"""The rarer in prose, the further in front."""
_SAMPLE_CHARS: Final = 20_000
_SAMPLE_ROWS: Final = 20


def read_csv(text: str) -> Content:
    """One table block; no block where nothing stands below the header. Rows of any length are kept."""
    # The module's own limit, 131,072 characters, refuses files whose cells hold articles.
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    rows = _rows(text, delimiter_of(text))
    if sum(1 for row in rows if any(map(str.strip, row))) < 2:
        return Content(blocks=())
    return Content(blocks=(Block("\n".join(pipe_rows(rows)), kind="table"),))


def delimiter_of(text: str) -> str:
    """The delimiter that gives most of the first rows as many cells as the header; of equals, the one with more cells.

    `csv.Sniffer` is not asked: it takes any quoted word for a hint, and its patterns take quadratic time.
    """
    return max(_DELIMITERS, key=lambda delimiter: _fitness(text[:_SAMPLE_CHARS], delimiter))


def _fitness(sample: str, delimiter: str) -> tuple[int, int]:
    widths = [len(row) for row in islice(csv.reader(io.StringIO(sample), delimiter=delimiter), _SAMPLE_ROWS) if row]
    if not widths or widths[0] == 1:
        return 0, 0
    return sum(1 for width in widths if width == widths[0]), widths[0]


def _rows(text: str, delimiter: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
