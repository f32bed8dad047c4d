"""Text as a sparse vector, so that its dot product with a query's, weighted by Qdrant's IDF modifier, is BM25.

BM25 after Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009). The collection's mean length is
unknown while documents come in one by one, so a constant stands for it, as in Qdrant's own BM25.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass

from shared.language import terms

K1 = 1.2
B = 0.75
MEAN_TERMS = 80.0


@dataclass(frozen=True, slots=True)
class SparseVector:
    """`values[i]` is the weight of the term whose 32-bit hash is `indices[i]`; no index stands twice."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


def of_passage(text: str, language: str) -> SparseVector:
    """Term frequencies, saturated and set in relation to the passage's length."""
    counts = Counter(_hashed(text, language))
    norm = K1 * (1 - B + B * sum(counts.values()) / MEAN_TERMS)
    return SparseVector(tuple(counts), tuple(count * (K1 + 1) / (count + norm) for count in counts.values()))


def of_query(text: str, language: str) -> SparseVector:
    """One for each term that the query has."""
    found = tuple(dict.fromkeys(_hashed(text, language)))
    return SparseVector(found, (1.0,) * len(found))


def _hashed(text: str, language: str) -> list[int]:
    return [zlib.crc32(term.encode()) for term in terms(text, language)]
