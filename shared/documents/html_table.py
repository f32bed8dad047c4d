"""Tables of HTML as pipe rows, which models and people read alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from bs4 import Tag

from shared.documents.html_page import HEADINGS

_BLANK: Final = re.compile(r"\s+")


def is_data_table(table: Tag) -> bool:
    """Whether it tabulates; one that holds headings, lists, code or tables only lays out the page."""
    return (
        table.get("role") not in {"presentation", "none"}
        and table.find([*HEADINGS, "table", "pre", "ul", "ol"]) is None
        and any(len(row.find_all(["td", "th"])) > 1 for row in table.find_all("tr"))
    )


def pipe_rows(table: Tag) -> Iterator[str]:
    """Caption, first row as header, separator, further rows; cells are escaped, spanned columns left blank."""
    if table.caption and (caption := _cell_text(table.caption)):
        yield caption
        yield ""
    rows = [cells for row in table.find_all("tr") if any(cells := _cells(row))]
    width = max((len(cells) for cells in rows), default=0)
    for number, cells in enumerate(rows):
        yield "| " + " | ".join(cells + [""] * (width - len(cells))) + " |"
        if number == 0:
            yield "|" + "---|" * width


def _cells(row: Tag) -> list[str]:
    found: list[str] = []
    for cell in row.find_all(["td", "th"]):
        found.append(_cell_text(cell).replace("|", "\\|"))
        found.extend([""] * (_span(cell) - 1))
    return found


def _span(cell: Tag) -> int:
    span = str(cell.get("colspan", "1"))
    return min(int(span), 100) if span.isascii() and span.isdigit() else 1


def _cell_text(cell: Tag) -> str:
    return _BLANK.sub(" ", cell.get_text(" ")).strip()
