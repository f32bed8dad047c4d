"""How many words of a question a text has in common with it, rare-looking words counting more. Pure.

No statistics over the passages at hand: with a handful of them, document frequencies say nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from shared.language import terms


def distinct_terms(text: str, language: str) -> tuple[str, ...]:
    """The content words of `text`, stemmed, each once, in order."""
    return tuple(dict.fromkeys(terms(text, language)))


def weight(term: str) -> float:
    """How much a word tells: numbers and codes most, long words more than short ones. In (0, 1.5]."""
    return 1.5 if any(character.isdigit() for character in term) else min(len(term), 9) / 6


def coverage(wanted: Iterable[str], present: Collection[str]) -> float:
    """The share of `wanted`, by weight, that is in `present`; in [0, 1], 0 where nothing is wanted."""
    total = found = 0.0
    for term in wanted:
        total += weight(term)
        if term in present:
            found += weight(term)
    return found / total if total else 0.0


def shared_pairs(wanted: Sequence[str], present: Sequence[str]) -> float:
    """The share of neighbouring pairs of `wanted` that are neighbours in `present`, too; in [0, 1]."""
    pairs = set(pairwise(wanted))
    return len(pairs & set(pairwise(present))) / len(pairs) if pairs else 0.0
