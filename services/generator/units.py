"""What the embedded writer can quote: the sentences and table rows of the passages, word for word. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.citations import shortened
from shared.contracts import Evidence
from shared.language import detect_language, fold, sentences

_UNIT_CHARS: Final = range(4, 601)
"""Shorter ones are numbers or bullets on their own; longer ones are cut between words."""
_ROW: Final = re.compile(r"^\s*\|.*\|\s*$")
_RULE: Final = re.compile(r"^[\s|:-]+$")
_NO_FIRST_HEAD: Final = re.compile(r"\s*\|\s*\|")
_HEADING: Final = re.compile(r"^\s*#{1,6}\s")


@dataclass(frozen=True)
class Unit:
    """A sentence or table row of a passage. `text` stands word for word in it; `table` is the row's head, if a row."""

    source: int
    """Index of its evidence."""
    place: int
    """Its place among the units of that evidence."""
    text: str
    language: str
    table: str = ""
    """Head row and rule line of its table, as they stand there."""

    @property
    def is_property(self) -> bool:
        """Whether it is a row of a table whose columns are the items and whose rows are their properties."""
        return bool(_NO_FIRST_HEAD.match(self.table))

    def meant(self, question: str) -> str:
        """What it means by itself: a row with its head row, a property only of the items that the question names."""
        if not self.table:
            return self.text
        head, row = _cells(self.table.split("\n")[0]), _cells(self.text)
        asked = fold(question)
        named = [column for column, cell in enumerate(head) if column and cell and fold(cell) in asked]
        if not self.is_property or not named or len(head) != len(row):
            return f"{self.table}\n{self.text}"
        return "\n".join(f"{head[column]}, {row[0]}: {row[column]}" for column in named)


def candidates(evidence: Sequence[Evidence]) -> list[Unit]:
    """Every sentence and table row of the strips, in order; headings, rule lines and head rows are none."""
    found: list[Unit] = []
    for source, each in enumerate(evidence):
        passage = each.passage
        language = passage.language if passage.language != "und" else detect_language(passage.text)
        heads = _heads(passage.text)
        strips = [strip for strip in each.strips if strip in passage.text] or [passage.text]
        seen = {table.split("\n")[0] for table in heads.values()}
        known = len(seen)
        for line in (line for strip in strips for line in strip.splitlines()):
            row = bool(_ROW.match(line))
            if _HEADING.match(line) or (row and _RULE.match(line)):
                continue
            for piece in [line.strip()] if row else sentences(line, language):
                text = shortened(piece, _UNIT_CHARS[-1])
                if text not in seen and len(text) in _UNIT_CHARS and re.search(r"\w", text):
                    seen.add(text)
                    found.append(Unit(source, len(seen) - known, text, language, heads.get(text, "") if row else ""))
    return found


def _heads(text: str) -> dict[str, str]:
    """For each table row of `text`, the head row and rule line of its table, as they stand there."""
    heads: dict[str, str] = {}
    head, last = "", ""
    for line in text.splitlines():
        if not _ROW.match(line):
            head = ""
        elif _RULE.match(line):
            head = f"{last}\n{line.strip()}" if last else ""
        elif head:
            heads[shortened(line.strip(), _UNIT_CHARS[-1])] = head
        last = line.strip() if _ROW.match(line) else ""
    return heads


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]
