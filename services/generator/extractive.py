"""The embedded writer: the sentences and table rows that answer best, word for word. Pure, given cosines."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from services.generator.decision import Written, phrase_language, trust, weight
from services.generator.markers import settle
from shared.citations import QUOTE_CHARS, citation, shortened
from shared.contracts import Evidence
from shared.language import detect_language, fold, sentences, terms

WRITER: Final = "extractive"
MAX_UNITS: Final = 3
MAX_VECTORS: Final = 16
"""Sentences embedded for one answer at most."""

_UNIT_CHARS: Final = range(4, 601)
"""Shorter ones are numbers or bullets on their own; longer ones are cut between words."""
_SECOND_FROM: Final = 0.75
"""Share of the best score that a second sentence for the same question must have."""
_PART_FROM: Final = 0.25
"""Coverage that a later part's sentence must have, unless its cosine is among the best."""

_LEAD_IN: Final = {"en": "According to the documents:", "fr": "D'après les documents :", "ru": "Согласно документам:"}
_ASKING: Final = (
    r"(?:who|what|when|where|which|why|how|is|are|do|does|can|may|must|will|qui|que|quel\w*|quand|où|comment|combien"
    r"|est-ce|peut-on|faut-il|à quel\w*|кто|что|когда|где|куда|как\w*|сколько|можно|нужно|есть|в как\w*|до скольки)"
)
_PARTS: Final = re.compile(rf"[?;]+|,\s+(?:and|et|и)\s+|\s+(?:and|et|и)\s+(?={_ASKING}\b)", re.IGNORECASE)
_ROW: Final = re.compile(r"^\s*\|.*\|\s*$")
_RULE: Final = re.compile(r"^[\s|:-]+$")
_HEADING: Final = re.compile(r"^\s*#{1,6}\s")
_BULLET: Final = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s+")
_FENCES: Final = re.compile(r"`{3,}|~{3,}")
_GOES_ON: Final = re.compile(
    r"^(?:it|they|this|these|that|those|he|she|il|elle|ils|elles|cela|ce|cette|ces|он|она|оно|они|это|эти|этот|эта)\b",
    re.IGNORECASE,
)
_ASKS_MONEY: Final = re.compile(
    r"(?i)\b(?:costs?|prices?|how much|fees?|charges?|co[uû]t\w*|prix|tarifs?|стоит|стоят|стоимость|цен\w+)\b"
)
_MONEY: Final = re.compile(r"(?i)[€$£₽₸]|\b(?:euros?|EUR|USD|евро|руб\w*)\b")
_ASKS_TIME: Final = re.compile(
    r"(?i)\b(?:what time|opens?|opening|closes?|closing|quelle heure|ferme\w*|ouvr\w+|во сколько|до скольки)\b"
)
_TIME: Final = re.compile(r"(?i)\b\d{1,2}(?::\d\d| ?h\b| ?[ap]\.?m\b)")
_DURATION: Final = re.compile(
    r"(?i)\d+[ -](?:\w+ )?(?:minutes?|hours?|days?|weeks?|months?|years?|heures?|jours?|mois|ans?|час|дн|мес|год|лет)"
)
_ASKS_NUMBER: Final = re.compile(
    r"(?i)\b(?:how (?:many|long|old|far|often)|when|which \w+ (?:size|length)|up to|maximum|combien|quand|températur\w*"
    r"|сколько|когда|какой температур\w*|как долго|срок)\b"
)
_KINDS: Final = (
    (_ASKS_MONEY, _MONEY, 0.25),
    (_ASKS_TIME, _TIME, 0.25),
    (re.compile(r"(?i)\b(?:how long|combien de temps|как долго|срок)\b"), _DURATION, 0.25),
    (_ASKS_NUMBER, re.compile(r"\d"), 0.15),
)
"""What a question asks for, how an answer of that kind looks, and what it is worth."""
_IDENTIFIER: Final = re.compile(r"(?=\S*\d)(?=\S*[^\W\d_])[\w-]{4,}")
_AROUND: Final = 0.6
"""What a term found only around a unit (title, section, head row, identifiers of its table) counts."""
_OTHER_FROM: Final = 0.6
"""A later part that an already quoted unit answers best gets another unit only from this share of its score."""


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


def needing_vectors(question: str, language: str, units: Sequence[Unit], evidence: Sequence[Evidence]) -> list[int]:
    """Indices of the at most `MAX_VECTORS` units to compare by meaning; none where words in common are enough.

    Words are not enough where question and passage speak different languages, or share no term.
    """
    scale = _Scale(question, language, units, evidence, {})
    across = any(unit.language != language for unit in units)
    if not across and any(scale.coverage(question, index) > 0 for index in range(len(units))):
        return []
    ranked = sorted(range(len(units)), key=lambda index: -scale.score(question, index))
    return sorted(ranked[:MAX_VECTORS])


def choose(
    question: str, language: str, units: Sequence[Unit], evidence: Sequence[Evidence], cosines: Mapping[int, float]
) -> list[Unit]:
    """One to three units that answer, best first; for a question of several parts, the best of each part.

    `cosines[i]` is the cosine of question and units[i], for those that were compared.
    """
    if not units:
        return []
    scale = _Scale(question, language, units, evidence, cosines)
    parts = parts_of(question, language)
    chosen: list[int] = []
    for part in parts:
        scores = [scale.score(part, index) for index in range(len(units))]
        best, *others = sorted(range(len(units)), key=scores.__getitem__, reverse=True)
        if best in chosen:
            other = next((index for index in others if index not in chosen), best)
            if scores[other] < _OTHER_FROM * scores[best]:
                continue
            best = other
        if chosen and scale.coverage(part, best) < _PART_FROM and scale.meaning(best) < 0.9:
            continue
        chosen.append(best)
        if (paying := scale.row_with_the_price(part, best)) is not None:
            chosen.append(paying)
        elif len(parts) == 1:
            rest = [index for index in range(len(units)) if index != best and scale.coverage(part, index) > 0]
            second = max(rest, key=scores.__getitem__, default=None)
            if second is not None and scores[second] >= _SECOND_FROM * scores[best]:
                chosen.append(second)
    return _with_continuations(_distinct([units[index] for index in chosen])[:MAX_UNITS], units)


def compose(chosen: Sequence[Unit], evidence: Sequence[Evidence], language: str) -> Written | None:
    """The quoted answer: a lead-in in the question's language, then each unit with its `[n]`; None for no units."""
    if not chosen:
        return None
    blocks: list[str] = []
    number = 0
    for table, group in groupby(chosen, key=lambda unit: unit.table):
        units = list(group)
        markers = [f"[{n}]" for n in range(number + 1, number + len(units) + 1)]
        number += len(units)
        if table:
            # A marker behind the last cell would be a cell too many, which Markdown drops: it stands below.
            blocks.append("\n".join([*map(_inert, table.split("\n")), *(_inert(unit.text) for unit in units)]))
            blocks.append("".join(markers))
        else:
            quoted = (_BULLET.sub("", _inert(unit.text)) for unit in units)
            blocks.append("\n".join(f"{text} {marker}" for text, marker in zip(quoted, markers, strict=True)))
    sources = tuple(evidence[unit.source] for unit in chosen)
    citations = tuple(
        citation(number, source, shortened(unit.text, QUOTE_CHARS))
        for number, (unit, source) in enumerate(zip(chosen, sources, strict=True), start=1)
    )
    return Written("\n\n".join([_LEAD_IN[phrase_language(language)], *blocks]), citations, sources)


def parts_of(question: str, language: str) -> list[str]:
    """The parts of a question that say something, each with its codes; the whole question if there is one."""
    parts = [part.strip() for part in _PARTS.split(question)]
    parts = [part for part in parts if terms(part, language) and len(_words(part)) > 1]
    if len(parts) < 2:
        return [question]
    codes = _IDENTIFIER.findall(question)
    return [" ".join([part, *(code for code in codes if code not in part)]) for part in parts[:MAX_UNITS]]


class _Scale:
    """Scores units for one question: terms in common, their order, the kind of answer, the grade, and meaning."""

    def __init__(
        self,
        question: str,
        language: str,
        units: Sequence[Unit],
        evidence: Sequence[Evidence],
        cosines: Mapping[int, float],
    ) -> None:
        self._question, self._language, self._units = question, language, units
        self._terms = [terms(unit.text, unit.language) for unit in units]
        self._literal = [_words(unit.text) for unit in units]
        self._around = [set(self._context(unit, evidence[unit.source])) for unit in units]
        self._trust = [trust(evidence[unit.source]) for unit in units]
        self._spread = Counter(term for found in self._terms for term in set(found))
        low, high = min(cosines.values(), default=0.0), max(cosines.values(), default=0.0)
        self._meaning = {index: (cosine - low) / (high - low or 1.0) for index, cosine in cosines.items()}

    def score(self, part: str, index: int) -> float:
        """How well the unit answers this part, mostly in [0, 2]; the whole question counts for a third of it."""
        asked = _words(part)
        literal = len(asked & self._literal[index]) / max(1, len(asked))
        words = 0.7 * self.coverage(part, index) + 0.3 * self.coverage(self._question, index)
        bonus = 0.15 * literal + self._in_order(part, index) + self._kind(part, index)
        return words + bonus + 0.3 * self._trust[index] + 0.8 * self.meaning(index)

    def coverage(self, part: str, index: int) -> float:
        """Share in [0, 1] of the part's terms found in the unit; found only around it, `_AROUND`."""
        inside = set(self._terms[index])
        total = found = 0.0
        for term in set(terms(part, self._language)):
            value = weight(term) * math.log1p(len(self._units) / (1 + self._spread[term]))
            total += value
            found += value if term in inside else _AROUND * value if term in self._around[index] else 0.0
        return found / total if total else 0.0

    def meaning(self, index: int) -> float:
        """Cosine of question and unit, stretched to [0, 1] over those compared; 0 for the others."""
        return self._meaning.get(index, 0.0)

    def row_with_the_price(self, part: str, index: int) -> int | None:
        """Where money is asked for and the best unit is a row without any: the row of its table that has it."""
        unit = self._units[index]
        if not unit.table or not _ASKS_MONEY.search(part) or _MONEY.search(unit.text):
            return None
        table = (unit.source, unit.table)
        rows = [i for i, row in enumerate(self._units) if (row.source, row.table) == table and _MONEY.search(row.text)]
        return max(rows, key=lambda other: self.score(part, other), default=None)

    def _in_order(self, part: str, index: int) -> float:
        wanted = set(pairwise(terms(part, self._language)))
        return 0.15 * len(wanted.intersection(pairwise(self._terms[index]))) / len(wanted) if wanted else 0.0

    def _kind(self, part: str, index: int) -> float:
        unit = self._units[index]
        worth = sum(value for asks, looks, value in _KINDS if asks.search(part) and looks.search(unit.text))
        named = unit.table and _ASKS_MONEY.search(f"{unit.table} {unit.text}") and _ASKS_MONEY.search(part)
        return worth + (0.2 if named else 0.0)

    def _context(self, unit: Unit, evidence: Evidence) -> list[str]:
        passage = evidence.passage
        rows = (other.text for other in self._units if unit.table and other.table == unit.table)
        names = [name for row in rows for name in _IDENTIFIER.findall(row)]
        return terms(" ".join((passage.title, passage.section, unit.table, *names)), unit.language)


def _words(text: str) -> set[str]:
    """Longer words as they stand: lists of stop words hold some that matter (click, keep, order; point)."""
    return set(re.findall(r"\w{4,}", fold(text)))


def _distinct(units: Sequence[Unit]) -> list[Unit]:
    texts = [fold(unit.text) for unit in units]
    return [unit for n, unit in enumerate(units) if not any(texts[n] in earlier for earlier in texts[:n])]


def _with_continuations(chosen: Sequence[Unit], units: Sequence[Unit]) -> list[Unit]:
    """The chosen units, each followed by the next sentence where that one only goes on about it and there is room."""
    following = {(unit.source, unit.place): unit for unit in units}
    kept = list(chosen)
    for unit in chosen:
        after = following.get((unit.source, unit.place + 1))
        if after and not unit.table and after not in kept and len(kept) < MAX_UNITS and _GOES_ON.match(after.text):
            kept.insert(kept.index(unit) + 1, after)
    return kept


def _inert(text: str) -> str:
    """`text` without what would read as a marker or open a code block in the answer."""
    return settle(_FENCES.sub("", text), 0).text
