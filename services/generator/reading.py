"""What a model's reply amounts to. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import json_repair

from services.generator.decision import Written, weight
from services.generator.markers import (
    Settled,
    cited_sentences,
    settle,
    whole_beginning,
    whole_sentences,
    without_markers,
)
from services.generator.prompts import LANGUAGES, Shown
from shared.citations import QUOTE_CHARS, citation, shortened
from shared.contracts import Evidence
from shared.language import SPOKEN, detect_language, sentences, terms

CUT: Final = "answer cut at the token limit"
SAYS_NO: Final = re.compile(r"(?i:NO_ANSWER)|NO ANSWER\b")

_MISSING_CHARS: Final = 200
_TELLING_LETTERS: Final = 25
"""Fewer do not tell a language."""
_UNSEEN: Final = re.compile(r"[\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]|<\|\w{1,40}\|>")
_HALF_PAIR: Final = re.compile(r"[\ud800-\udfff]")
_DATA: Final = re.compile(r"\s*(?:```\w*\s*)?\{")
_NOT_ITS_OWN: Final = re.compile(r"«[^»]*»|“[^”]*”|\"[^\"\n]*\"|`[^`]*`")
"""Quotations and code may be in any language."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A reply that can't be shown. `finding` is what the model is told, `mark` what the outcome says if that is all."""

    finding: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The model says that the passages do not answer, and perhaps, in words to search for, what is missing."""

    missing: str = ""


def cleaned(text: str) -> str:
    """`text` without signs that nobody sees, and without halves of surrogate pairs, which no stream can carry."""
    return _HALF_PAIR.sub("\ufffd", _UNSEEN.sub("", text))


def mended(text: str) -> Any:
    """The JSON that `text` is meant to be, or None."""
    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):
        return None


def read_reply(
    text: str, finish_reason: str, shown: Sequence[Shown], language: str, *, max_chars: int = 100_000
) -> Written | Unusable | NoAnswer:
    """The reply, up to `max_chars`. Sentences that say NO_ANSWER beside cited ones are left out, and repeated ones."""
    cut = finish_reason == "length" or len(text) > max_chars
    text = _unwrapped(cleaned(text[:max_chars]))
    if said := SAYS_NO.match(bare := text.strip("\"'`*.[] \n")):
        told = without_markers(bare[said.end() :]).strip("\"'`*:–—- \n")
        return NoAnswer(shortened(" ".join(told.split()), _MISSING_CHARS))
    settled = settle(_without_idle(text, language), len(shown))
    if cut:
        settled = _resettled(settled, whole_beginning(settled.text, language))
    if not any(map(str.isalnum, without_markers(settled.text))):
        return Unusable("it is empty")
    if not settled.used:
        return Unusable(f"no sentence cites a passage by its number, [1] to [{len(shown)}]")
    if _is_foreign(settled.text, language):
        return Unusable(f"it is not in {LANGUAGES[language]}", "the model answers in another language: citations only")
    return written(settled, [each.evidence for each in shown], language, (CUT,) if cut else ())


def written(settled: Settled, evidence: Sequence[Evidence], language: str, degraded: tuple[str, ...] = ()) -> Written:
    """The answer with its citations; `evidence[n - 1]` is what the writer numbered n."""
    claims = cited_sentences(settled.text, language)
    sources = tuple(evidence[number - 1] for number in settled.used)
    citations = tuple(
        citation(n, source, quote(source, " ".join(claims.get(n, [])), language))
        for n, source in enumerate(sources, start=1)
    )
    return Written(settled.text, citations, sources, degraded)


def quote(evidence: Evidence, claim: str, language: str) -> str:
    """The sentence of the strips that shares most of the claim's terms, word for word, up to 300 characters.

    The beginning of the best strip if none shares any, as when claim and passage speak different languages.
    """
    passage = evidence.passage
    strips = [strip for strip in evidence.strips if strip.strip() and strip in passage.text] or [passage.text]
    spoken = passage.language if passage.language != "und" else detect_language(passage.text)
    wanted = set(terms(claim, language))
    best, most = strips[0], 0.0
    for strip in strips:
        for sentence in sentences(strip, spoken):
            shared = sum(weight(term) for term in wanted.intersection(terms(sentence, spoken)))
            if shared > most:
                best, most = sentence, shared
    return shortened(best, QUOTE_CHARS)


def _unwrapped(text: str) -> str:
    """The answer in a reply that is JSON although nobody asked for it."""
    if not _DATA.match(text):
        return text
    found = mended(text[text.index("{") :])
    said = [value for value in found.values() if isinstance(value, str)] if isinstance(found, dict) else []
    return max(said, key=len) if said else text


def _without_idle(text: str, language: str) -> str:
    pieces = whole_sentences(text, language)
    if len(set(pieces)) == len(pieces) and not SAYS_NO.search(text):
        return text
    return "\n".join(piece for piece in dict.fromkeys(pieces) if not SAYS_NO.search(piece))


def _is_foreign(text: str, language: str) -> bool:
    """Whether this is surely not in the language asked for; of languages that are not spoken nobody can say."""
    own = _NOT_ITS_OWN.sub("", without_markers(text))
    letters = [letter for letter in own if letter.isalpha()]
    return language in SPOKEN and len(letters) >= _TELLING_LETTERS and detect_language(own) != language


def _resettled(settled: Settled, text: str) -> Settled:
    """A shorter text of the same answer, with the writer's own numbers kept."""
    again = settle(text, len(settled.used))
    return Settled(again.text, tuple(settled.used[number - 1] for number in again.used))
