"""Tables of HTML as pipe rows, which models and people read alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bs4 import Tag

from shared.documents.html_page import HEADINGS
from shared.documents.table import flat, pipe_rows

_MAX_SPAN: Final = 100


def is_data_table(table: Tag) -> bool:
    """Whether it tabulates; one that holds headings, lists, code or tables only lays out the page."""
    return (
        table.get("role") not in {"presentation", "none"}
        and table.find([*HEADINGS, "table", "pre", "ul", "ol"]) is None
        and any(len(row.find_all(["td", "th"])) > 1 for row in table.find_all("tr"))
    )


def table_lines(table: Tag) -> Iterator[str]:
    """Caption, first row as header, separator, further rows; spanned columns are left blank."""
    if table.caption and (caption := flat(table.caption.get_text(" "))):
        yield caption
        yield ""
    yield from pipe_rows([_cells(row) for row in table.find_all("tr")])


def _cells(row: Tag) -> list[str]:
    found: list[str] = []
    for cell in row.find_all(["td", "th"]):
        found.append(cell.get_text(" "))
        found.extend([""] * (_span(cell) - 1))
    return found


def _span(cell: Tag) -> int:
    span = str(cell.get("colspan", "1"))
    # Four digits at most: int() itself refuses thousands of them.
    return min(int(span), _MAX_SPAN) if span.isascii() and span.isdigit() and len(span) <= 4 else 1
