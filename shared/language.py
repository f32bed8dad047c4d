"""The little that Cairn needs to know of languages: which one, where sentences end, which words carry meaning.

Libraries do the work: py3langid (naive Bayes over byte n-grams), sentencex, stop-words and Snowball stemmers. English,
French and Russian are spoken; other languages pass through unstemmed.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

import sentencex
import Stemmer
from py3langid.langid import MODEL_FILE, LanguageIdentifier
from stop_words import StopWordError, get_stop_words

SPOKEN: Final = ("en", "fr", "ru")
"""Languages of the fixed phrases."""

_STEMMERS: Final = {"en": "english", "fr": "french", "ru": "russian", "de": "german", "es": "spanish", "it": "italian"}
_WORD: Final = re.compile(r"[^\W_]+(?:[-./'’][^\W_]+)*")
_PART: Final = re.compile(r"[^\W_]+")
_OPENS: Final = re.compile(r"\s*(?:[-*+•‣–]\s|\d{1,3}[.)]\s|#{1,6}\s|[|>]|```|~~~)")
"""How a line begins that does not continue the one before it."""
_STANDS_ALONE: Final = re.compile(r"\s*(?:#{1,6}\s|\|)|.*:\s*$|\s*$")
"""A line that the next one does not continue."""
_OPEN_END: Final = re.compile(r"(?<=\w)\.\s*$")
_ABBREVIATION_CHARS: Final = 12
_CYRILLIC: Final = re.compile(r"[\u0400-\u04ff]")
_LETTER: Final = re.compile(r"[^\W\d_]")


def detect_language(text: str, *, default: str = "en") -> str:
    """ISO 639-1 code, one of `SPOKEN`; `default` for text without letters. Short questions are told apart, too."""
    letters = _LETTER.findall(text[:4000])
    if not letters:
        return default
    if sum(1 for letter in letters if _CYRILLIC.match(letter)) * 2 > len(letters):
        return "ru"
    language, _ = _identifier().classify(text[:4000])
    return str(language)


@lru_cache(maxsize=1)
def _identifier() -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(list(SPOKEN))
    return identifier


def sentences(text: str, language: str) -> list[str]:
    """The sentences of `text` in order, each word for word as it stands there, without surrounding blanks.

    A line break ends a sentence only where a paragraph, heading, list entry or table row ends; a wrapped line does
    not. A short piece that ends in a full stop ("M.", "Т. е.") belongs to what follows it.
    """
    known = language if language in _STEMMERS else "en"
    found: list[str] = []
    for paragraph in _paragraphs(text):
        held = ""
        for piece in sentencex.segment(known, paragraph):
            held += piece
            if len(held.strip()) > _ABBREVIATION_CHARS or not _OPEN_END.search(held):
                found.append(held.strip())
                held = ""
        found.append(held.strip())
    return [sentence for sentence in found if sentence]


def _paragraphs(text: str) -> list[str]:
    found: list[str] = []
    open_ended = False
    for line in text.splitlines(keepends=True):
        if open_ended and line.strip() and not _OPENS.match(line):
            found[-1] += line
        else:
            found.append(line)
        open_ended = not _STANDS_ALONE.match(line.rstrip())
    return found


def fold(text: str) -> str:
    """`text` as it is compared: NFKC, lower case, ё as е, accents off Latin letters."""
    lowered = unicodedata.normalize("NFKC", text).lower().replace("ё", "е")
    if lowered.isascii():
        return lowered
    # й is и with a breve once decomposed: marks come off Latin letters only.
    return "".join(
        unicodedata.normalize("NFD", letter)[0] if "\u00c0" <= letter <= "\u024f" else letter for letter in lowered
    )


def terms(text: str, language: str) -> list[str]:
    """Searchable terms of `text`, with repetitions: stemmed content words, and identifiers whole and in parts.

    "NK-T2-310" gives nk-t2-310, nk, t2 and 310. Stop words of the language are left out.
    """
    stop = _stop_words(language)
    stem = _stemmer(language)
    found: list[str] = []
    for match in _WORD.finditer(fold(text)):
        word = match.group()
        parts = _PART.findall(word)
        if len(parts) > 1 and any(character.isdigit() for character in word):
            found.append(word)
        found.extend(stem(part) for part in parts if part not in stop)
    return found


@lru_cache(maxsize=32)
def _stop_words(language: str) -> frozenset[str]:
    try:
        return frozenset(fold(word) for word in get_stop_words(language))
    except StopWordError:
        return frozenset()


@lru_cache(maxsize=32)
def _stemmer_named(name: str) -> Stemmer.Stemmer:
    return Stemmer.Stemmer(name)


class _Stem:
    """Stems words of letters and leaves numbers and codes alone."""

    def __init__(self, name: str | None) -> None:
        self._stemmer = _stemmer_named(name) if name else None

    def __call__(self, word: str) -> str:
        if self._stemmer is None or not word.isalpha():
            return word
        return str(self._stemmer.stemWord(word))


@lru_cache(maxsize=32)
def _stemmer(language: str) -> _Stem:
    return _Stem(_STEMMERS.get(language))
