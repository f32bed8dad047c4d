"""The embedded writer: the sentences and table rows that answer best, word for word. Pure, given cosines."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final

from services.generator.decision import Written, phrase_language, trust, weight
from services.generator.kinds import asked_and_met, kind_bonus
from services.generator.markers import settle
from services.generator.units import Unit
from shared.citations import QUOTE_CHARS, citation, shortened
from shared.contracts import Evidence
from shared.language import fold, terms
from shared.parts import CODE, parts_of, standing_alone

WRITER: Final = "extractive"
MAX_UNITS: Final = 3
MAX_VECTORS: Final = 10
"""Sentences embedded for one answer at most."""

_OTHERS_FROM: Final = 0.75
"""Share of the best score that other sentences for the same question must have."""
_BESIDE: Final = 0.25
"""What it is worth for them to stand in the best one's passage."""
_PART_FROM: Final = 0.25
"""Coverage that a later part's sentence must have, unless its cosine is among the best."""

_LEAD_IN: Final = {"en": "According to the documents:", "fr": "D'après les documents :", "ru": "Согласно документам:"}
_BULLET: Final = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s+")
_FENCES: Final = re.compile(r"`{3,}|~{3,}")
_GOES_ON: Final = re.compile(
    r"^(?:it|they|this|these|that|those|he|she|il|elle|ils|elles|cela|ce|cette|ces|он|она|оно|они|это|эти|этот|эта)\b",
    re.IGNORECASE,
)
_AROUND, _AROUND_ROW = 0.6, 0.8
"""What a term found only around a sentence (title, section) or a row (its head row, too) counts."""
_GRADE, _MEANING, _MEANING_FOREIGN = 0.9, 0.3, 0.8
"""What the passage's grade is worth, and the cosine, between two texts of one language and across languages."""
_OF_PART: Final = 0.4
"""What is left of both for a part: they are those of the whole question."""
_OTHER_ITEM: Final = 0.8
"""What a unit loses that names other codes than the one asked for."""
_LABEL, _IS_LABEL = 0.2, re.compile(r"[^.!?…;:\d]{1,60}")
"""What a short phrase loses that neither is a sentence nor holds a number: a heading, more often than an answer."""
_OTHER_FROM: Final = 0.75
"""A later part that an already quoted unit answers best gets another unit only from this share of its score."""
_SUPPORT_FROM, _COVERED = 0.67, 0.7
"""Best grade, and what the question's words in common add to it, from which there is an answer and not just something
near it. Across languages few words are in common, and the grade must do nearly alone."""


def needing_vectors(question: str, language: str, units: Sequence[Unit], evidence: Sequence[Evidence]) -> list[int]:
    """Indices of the at most `MAX_VECTORS` units to compare by meaning; none where words in common are enough.

    Words are not enough where question and passage speak different languages, or share no term. Elsewhere vectors
    change one answer in a hundred, and cost more than all the rest of the job.
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
    """At most three units that answer, best first, the best of each part of the question; none if all are too weak.

    `cosines[i]` is the cosine of question and units[i], for those that were compared.
    """
    if not units:
        return []
    scale = _Scale(question, language, units, evidence, cosines)
    parts = standing_alone(parts_of(question, language)[:MAX_UNITS], language)
    chosen: list[int] = []
    for part in parts:
        scores = [scale.score(part, index) for index in range(len(units))]
        best, *others = sorted(range(len(units)), key=scores.__getitem__, reverse=True)
        if best not in chosen:
            if not chosen or scale.answers_part(part, best):
                chosen.append(best)
        else:
            enough = _OTHER_FROM * scores[best]
            elsewhere = [index for index in others if scale.stands_elsewhere(index, chosen)][:1]
            chosen += [i for i in elsewhere if scores[i] >= enough and scale.answers_part(part, i)]
        if len(parts) == 1:
            beside = [_BESIDE * (unit.source == units[best].source) for unit in units]
            others.sort(key=lambda index: scores[index] + beside[index], reverse=True)
            enough = _OTHERS_FROM * scores[best]
            near = [index for index in others if scores[index] + beside[index] >= enough]
            chosen += [index for index in near if scale.adds(part, index, best)][: MAX_UNITS - 1]
    if not any(map(scale.supports, chosen)):
        return []
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
        self._inside = [set(found) | self._items(unit) for found, unit in zip(self._terms, units, strict=True)]
        self._trust = [trust(evidence[unit.source]) for unit in units]
        self._grades = [evidence[unit.source].grade.score for unit in units]
        self._spread = Counter(term for found in self._terms for term in set(found))
        low, high = min(cosines.values(), default=0.0), max(cosines.values(), default=0.0)
        self._meaning = {index: (cosine - low) / (high - low or 1.0) for index, cosine in cosines.items()}

    def score(self, part: str, index: int) -> float:
        """How well the unit answers this part, mostly in [0, 3]."""
        unit, asked = self._units[index], _words(part)
        literal = len(asked & self._literal[index]) / max(1, len(asked))
        words = self.coverage(part, index)
        bonus = 0.15 * literal + self._in_order(part, index) + kind_bonus(part, unit.text, unit.table)
        meant = _MEANING_FOREIGN if self._foreign(index) else _MEANING
        known = _GRADE * self._trust[index] + meant * self.meaning(index)
        codes, named = set(CODE.findall(fold(part))), set(CODE.findall(fold(unit.text)))
        other = _OTHER_ITEM if codes and named and not codes & named else 0.0
        label = _LABEL if not unit.table and _IS_LABEL.fullmatch(unit.text) else 0.0
        return words + bonus - other - label + known * (1.0 if part == self._question else _OF_PART)

    def coverage(self, part: str, index: int, *, without: str = "") -> float:
        """Share in [0, 1] of the part's terms found in the unit; found only around it, `_AROUND`."""
        inside, beside = self._inside[index], _AROUND_ROW if self._units[index].table else _AROUND
        total = found = 0.0
        for term in set(terms(part, self._language)).difference(terms(without, self._language)):
            value = weight(term) * math.log1p(len(self._units) / (1 + self._spread[term]))
            total += value
            found += value if term in inside else beside * value if term in self._around[index] else 0.0
        return found / total if total else 0.0

    def meaning(self, index: int) -> float:
        """Cosine of question and unit, stretched to [0, 1] over those compared; 0 for the others."""
        return self._meaning.get(index, 0.0)

    def supports(self, index: int) -> bool:
        """Whether there is an answer, by the best grade and this unit's words. With an ungraded passage, no doubt."""
        grades = [each for each in self._grades if each is not None]
        if len(grades) < len(self._grades):
            return True
        met = asked_and_met(self._question, self._units[index].text)
        return max(grades) + _COVERED * self.coverage(self._question, index, without=met) >= _SUPPORT_FROM

    def answers_part(self, part: str, index: int) -> bool:
        """Whether the unit is good enough to be quoted for a later part."""
        return self.coverage(part, index) >= _PART_FROM or self.meaning(index) >= 0.9

    def stands_elsewhere(self, index: int, chosen: Sequence[int]) -> bool:
        """Whether the unit is neither among the chosen nor another item of a table that one of them comes from."""
        unit = self._units[index]
        quoted = {(self._units[each].source, self._units[each].table) for each in chosen}
        is_other_item = bool(unit.table) and not unit.is_property and (unit.source, unit.table) in quoted
        return index not in chosen and not is_other_item

    def adds(self, part: str, index: int, best: int) -> bool:
        """Whether another unit may help beside the best: a row if it has what that lacks, of the same item."""
        if not self._units[index].table:
            return True
        asked = set(terms(part, self._language))
        has, had = (asked & (self._inside[each] | self._around[each]) for each in (index, best))
        codes = set(CODE.findall(fold(part)))
        return bool(has - had) and not (codes & had) - has

    def _foreign(self, index: int) -> bool:
        return self._units[index].language != self._language

    def _in_order(self, part: str, index: int) -> float:
        wanted = set(pairwise(terms(part, self._language)))
        return 0.15 * len(wanted.intersection(pairwise(self._terms[index]))) / len(wanted) if wanted else 0.0

    def _context(self, unit: Unit, evidence: Evidence) -> list[str]:
        passage = evidence.passage
        return terms(" ".join((passage.title, passage.section, unit.table)), unit.language)

    def _items(self, unit: Unit) -> set[str]:
        """Where the columns are the items, not the rows: their names and codes, which each row is about."""
        if not unit.is_property:
            return set()
        rows = (other.text for other in self._units if (other.source, other.table) == (unit.source, unit.table))
        codes = [code for row in rows for code in CODE.findall(row)]
        return set(terms(" ".join((unit.table, *codes)), unit.language))


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
