"""Refinement: a passage is cut into strips of a few sentences, and those that have nothing to say are dropped. Pure.

Every strip is a stretch of the passage, word for word, and strips keep their order. Tables and code are cut out whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from shared.contracts import Passage
from shared.language import detect_language, sentences
from shared.overlap import coverage, distinct_terms

_SENTENCES: Final = 3
"""Sentences of a strip, and of a passage that is left whole."""
_STRIP_CHARS: Final = 400
_WEAK_SHARE: Final = 0.5
"""A strip with less than this share of the best one's words in common is weak."""
_TELLING: Final = 0.2
"""Where not even the best strip has this much of the question's words, words can't tell weak from strong."""
_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_TABLE_ROW: Final = re.compile(r"\s*\|")


def refine(question: str, language: str, passage: Passage) -> tuple[str, ...]:
    """The strips worth reading; all of the passage, as one, where it is short or in another language than the question.

    `language` is the question's. The best strip keeps its neighbours: what a question names often stands in the
    sentence before the answer.
    """
    found = cut(passage, language)
    if len(found) < 2 or _spoken(passage, language) != language:
        return (text,) if (text := passage.text.strip()) else ()
    wanted = distinct_terms(question, language)
    scores = [coverage(wanted, frozenset(distinct_terms(strip, language))) for strip in found]
    best = max(scores)
    if best < _TELLING:
        return found
    near_best = {near for place, score in enumerate(scores) if score == best for near in (place - 1, place, place + 1)}
    return tuple(
        strip
        for place, (strip, score) in enumerate(zip(found, scores, strict=True))
        if score >= best * _WEAK_SHARE or place in near_best
    )


def cut(passage: Passage, language: str) -> tuple[str, ...]:
    """All strips of the passage, or all of it as one where it is short. `language` is what it is in if none is told."""
    text, spoken = passage.text.strip(), _spoken(passage, language)
    if len(sentences(text, spoken)) <= _SENTENCES:
        return (text,) if text else ()
    return tuple(strips(text, spoken))


def _spoken(passage: Passage, language: str) -> str:
    return passage.language if passage.language != "und" else detect_language(passage.text, default=language)


def strips(text: str, language: str) -> list[str]:
    """`text` cut into strips: up to three sentences of one paragraph, a table, or a block of code."""
    return [strip for block, is_prose in _blocks(text) for strip in (_runs(block, language) if is_prose else [block])]


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Stretches of `text` without surrounding blank lines, and whether they are prose."""
    kind, start, position, in_code = "", 0, 0, False
    for line in [*text.splitlines(keepends=True), ""]:
        fence = bool(_FENCE.match(line))
        now = _kind(line, in_code or fence) if line else ""
        if now != kind or not line:
            if block := text[start:position].strip():
                yield block, kind == "prose"
            kind, start = now, position
        in_code ^= fence
        position += len(line)


def _kind(line: str, is_code: bool) -> str:
    if is_code:
        return "code"
    if not line.strip():
        return "blank"
    return "table" if _TABLE_ROW.match(line) else "prose"


def _runs(block: str, language: str) -> list[str]:
    """Neighbouring sentences put together, with whatever stands between them."""
    runs: list[tuple[int, int]] = []
    count, position = 0, 0
    for sentence in sentences(block, language):
        start = block.index(sentence, position)
        position = start + len(sentence)
        if runs and count < _SENTENCES and position - runs[-1][0] <= _STRIP_CHARS:
            runs[-1] = (runs[-1][0], position)
            count += 1
        else:
            runs.append((start, position))
            count = 1
    return [block[start:end] for start, end in runs]
