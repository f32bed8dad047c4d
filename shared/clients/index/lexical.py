"""Search by words: texts become sparse vectors whose dot product is BM25.

A passage carries the term frequencies as BM25 saturates them (Robertson and Zaragoza 2009); the rarity of a term (IDF)
is the vector store's, counted at search time. Average passage length is a constant, so that a passage's vector never
depends on the others. A term's index is a 32-bit hash of it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import Stemmer
from stop_words import StopWordError, get_stop_words

from shared.language import fold

LEXICAL_VERSION: Final = "bm25-1"
"""Changes with anything below that changes a passage's vector; vectors of two versions must not be mixed."""

K1: Final = 1.2
B: Final = 0.75
AVERAGE_TERMS: Final = 150
"""Terms of a usual passage, stop words among them."""
STOP_WORD_WEIGHT: Final = 0.25
"""Stop words count less instead of nothing: lists hold words like "computer" and "bill". On our development questions
0.25 is as good as leaving them out, and better for long questions (recall at rank 1 .84, against .82)."""
_SHORT_CHARS: Final = 3

_STEMMERS: Final = {"en": "english", "fr": "french", "ru": "russian"}
_COMPOUND: Final = re.compile(r"[^\W_]+(?:[-._/:][^\W_]+)*")
_PART: Final = re.compile(r"[^\W_]+")
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_CYRILLIC: Final = re.compile("[\u0400-\u04ff]")
_MAX_TERM_CHARS: Final = 64

# A stemmer has state and must not be used by two threads at once.
_stemming = threading.Lock()


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term hashes in [0, 2^32), each once, with their weights (> 0). Empty for a text without words."""

    indices: tuple[int, ...]
    values: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.indices)


def encode_passage(text: str, language: str) -> SparseVector:
    """BM25 weights of a passage's terms, stemmed by its language (ISO 639-1; unknown ones are not stemmed)."""
    counts = Counter(_stem(term, language) for term in tokenise(text))
    longer = K1 * (1 - B + B * counts.total() / AVERAGE_TERMS)
    return _vector({term: count * (K1 + 1) / (count + longer) for term, count in counts.items()})


def encode_query(text: str, language: str) -> SparseVector:
    """Weights of a query's terms: 1, stop words of its language less, and short ones only if nothing else is asked.

    Every term is asked for as it stands and under each stemmer, for the passages may be in another language than the
    question: "Redis" in a Russian question must meet "redi", as English passages store it.
    """
    stop, asked = _stop_words(language), list(tokenise(text))
    # French "à" must not bring every English passage with an "a" in it.
    kept = [term for term in asked if term not in stop or len(term) > _SHORT_CHARS] or asked
    weights: dict[str, float] = {}
    for term in kept:
        weight = STOP_WORD_WEIGHT if term in stop else 1.0
        for form in {term, *(_stem(term, spoken) for spoken in _STEMMERS)}:
            weights[form] = max(weight, weights.get(form, 0.0))
    return _vector(weights)


def tokenise(text: str) -> Iterator[str]:
    """The words of `text`, folded (NFKC, lower case, ё as е, accents off Latin letters), with repetitions.

    Identifiers come whole and in parts: "NK-T2-310" gives nk-t2-310, nk, t2 and 310. So do names joined by dots or
    underscores; words with a hyphen come in parts only.
    """
    for match in _COMPOUND.finditer(fold(_INVISIBLE.sub("", text))):
        whole = match.group()
        parts = _PART.findall(whole)
        if len(parts) > 1 and _is_identifier(whole):
            yield whole[:_MAX_TERM_CHARS]
        for part in parts:
            yield part[:_MAX_TERM_CHARS]


def _is_identifier(compound: str) -> bool:
    return "_" in compound or "." in compound or any(character.isdigit() for character in compound)


def _stem(term: str, language: str) -> str:
    """Cyrillic words of an English, French or undetermined text are taken for Russian; codes and numbers stay."""
    if not term.isalpha():
        return term
    if _CYRILLIC.search(term):
        name = _STEMMERS["ru"] if language in ("ru", "en", "fr", "und") else None
    else:
        name = _STEMMERS.get(language) if language != "ru" else None
    return _stem_by(name, term) if name else term


@lru_cache(maxsize=65_536)
def _stem_by(name: str, term: str) -> str:
    with _stemming:
        return str(_stemmer(name).stemWord(term))


@lru_cache(maxsize=8)
def _stemmer(name: str) -> Stemmer.Stemmer:
    return Stemmer.Stemmer(name)


@lru_cache(maxsize=32)
def _stop_words(language: str) -> frozenset[str]:
    try:
        return frozenset(term for word in get_stop_words(language) for term in tokenise(word))
    except StopWordError:
        return frozenset()


def _vector(weights: dict[str, float]) -> SparseVector:
    by_index: dict[int, float] = {}
    for term, weight in weights.items():
        index = _index_of(term)
        by_index[index] = by_index.get(index, 0.0) + weight
    ordered = sorted(by_index.items())
    return SparseVector(tuple(index for index, _ in ordered), tuple(weight for _, weight in ordered))


@lru_cache(maxsize=65_536)
def _index_of(term: str) -> int:
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest(), "big")
