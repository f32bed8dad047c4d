"""Which way a question is answered: in silence, by citations, or by a written answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from services.generator.markers import Settled, cited_sentences, settle, whole_beginning, whole_sentences
from services.generator.prompts import NO_ANSWER, Shown
from services.generator.settings import AnsweringPolicy
from shared.citations import QUOTE_CHARS, citation, citations_of, shortened
from shared.contracts import Answered, Citation, Evidence, Generate, Header, Verdict
from shared.language import SPOKEN, detect_language, sentences, terms

Course = Literal["abstain", "citations", "write"]

UNGRADED: Final = 0.3
"""Confidence in a passage that no judge saw."""
AMBIGUOUS_FACTOR: Final = 0.8
CUT: Final = "answer cut at the token limit"
CAUSE_CHARS: Final = 120

_NOTHING_THERE: Final = {
    "en": "I can't answer this from the documents. Passages looked at: {count}. Searched for: {queries}. "
    "Nothing there answers the question.",
    "fr": "Je ne peux pas répondre à cette question d'après les documents. Passages examinés : {count}. "
    "Recherches : {queries}. Rien n'y répond à la question.",
    "ru": "По документам ответить на этот вопрос нельзя. Просмотрено фрагментов: {count}. Искали: {queries}. "
    "Ответа на вопрос там нет.",
}
_QUOTED: Final = {"en": "“{}”", "fr": "« {} »", "ru": "«{}»"}
_SAYS_NO: Final = re.compile(r"NO[_ ]ANSWER\b")


@dataclass(frozen=True)
class Written:
    """A usable reply: every `[n]` in `answer` is `citations[n - 1]`, which rests on `evidence[n - 1]`."""

    answer: str
    citations: tuple[Citation, ...]
    evidence: tuple[Evidence, ...]
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Uncited:
    """A reply without one valid citation; `finding` is what the model is told."""

    finding: str


@dataclass(frozen=True)
class NoAnswer:
    """The model says that the passages do not answer the question."""


def phrase_language(language: str) -> str:
    """The language of fixed phrases for a question in `language`: the same if spoken, else English."""
    return language if language in SPOKEN else "en"


def readable(msg: Generate) -> tuple[Evidence, ...]:
    """The evidence that the asker may read, best grade first (promise 5: checked again, whoever sent it)."""
    allowed = [each for each in msg.evidence if msg.header.principal.may_read(each.passage)]
    return tuple(sorted(allowed, key=lambda each: -trust(each)))


def trust(evidence: Evidence) -> float:
    """Grade of the passage in [0, 1]; `UNGRADED` without one."""
    return UNGRADED if evidence.grade.score is None else evidence.grade.score


def course(msg: Generate, evidence: Sequence[Evidence], policy: AnsweringPolicy) -> Course:
    """What to do with the evidence that may be read. Ungraded is not weak: with an ungraded passage it is answered."""
    if msg.verdict == "incorrect" or not evidence:
        return "abstain"
    scores = [each.grade.score for each in evidence if each.grade.score is not None]
    if msg.verdict == "ambiguous" and len(scores) == len(evidence) and max(scores) < policy.answer_from:
        return "abstain"
    return "citations" if msg.asked.answer == "citations" else "write"


def confidence(evidence: Iterable[Evidence], verdict: Verdict) -> float:
    """How far to trust an outcome that cites this evidence, in [0, 1]: its best grade, less if ambiguous, or 0."""
    best = max((trust(each) for each in evidence), default=0.0)
    return round(best * (AMBIGUOUS_FACTOR if verdict == "ambiguous" else 1.0), 4)


def abstained(header: Header, verdict: Verdict, *, now: float) -> Answered:
    """Silence, with what was looked at, in the language of the question (promise 7)."""
    spoken = phrase_language(header.language)
    count = len({passage.passage_id for step in header.trail for passage in step.passages})
    queries = dict.fromkeys(query for step in header.trail for query in step.queries)
    listed = ", ".join(_QUOTED[spoken].format(query) for query in queries) or "–"
    text = _NOTHING_THERE[spoken].format(count=count, queries=listed)
    return Answered.ending(header, "abstained", now=now, answer=text, verdict=verdict, confidence=0.0)


def cited(header: Header, verdict: Verdict, evidence: Sequence[Evidence], *, now: float) -> Answered:
    """Citations without an answer: asked for, or all that is left without a generator."""
    return Answered.ending(
        header,
        "citations",
        now=now,
        citations=citations_of(evidence),
        verdict=verdict,
        confidence=confidence(evidence, verdict),
    )


def answered(header: Header, verdict: Verdict, written: Written, *, writer: str, now: float) -> Answered:
    """The answer, and how far to trust it."""
    return Answered.ending(
        header.updated(degraded=written.degraded),
        "answered",
        now=now,
        answer=written.answer,
        citations=written.citations,
        verdict=verdict,
        confidence=confidence(written.evidence, verdict),
        writer=writer,
    )


def citations_only(cause: str) -> str:
    """The mark of an outcome that had to do without the model; of a long cause only the beginning."""
    return f"generator unavailable: citations only ({shortened(' '.join(cause.split()), CAUSE_CHARS)})"


def read_reply(text: str, finish_reason: str, shown: Sequence[Shown], language: str) -> Written | Uncited | NoAnswer:
    """What a model's reply amounts to. Sentences that say NO_ANSWER beside cited ones are left out."""
    if _SAYS_NO.match(text.strip("\"'`*.[] \n")):
        return NoAnswer()
    cut = finish_reason == "length"
    settled = settle(_without_no(text, language), len(shown))
    if cut:
        settled = _resettled(settled, whole_beginning(settled.text, language))
    if not settled.text:
        return Uncited("it is empty")
    if not settled.used:
        return Uncited(f"no sentence cites a passage by its number, [1] to [{len(shown)}]")
    claims = cited_sentences(settled.text, language)
    sources = tuple(shown[number - 1].evidence for number in settled.used)
    citations = tuple(
        citation(n, source, quote(source, " ".join(claims.get(n, [])), language))
        for n, source in enumerate(sources, start=1)
    )
    return Written(settled.text, citations, sources, (CUT,) if cut else ())


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


def weight(term: str) -> float:
    """How much a shared term says: 1 to 2 by length for words, 2.5 for what has a digit."""
    return 2.5 if any(character.isdigit() for character in term) else 1.0 + min(len(term), 10) / 10


def _without_no(text: str, language: str) -> str:
    if not _SAYS_NO.search(text):
        return text
    return "\n".join(piece for piece in whole_sentences(text, language) if NO_ANSWER not in piece)


def _resettled(settled: Settled, text: str) -> Settled:
    """A shorter text of the same answer, with the writer's own numbers kept."""
    again = settle(text, len(settled.used))
    return Settled(again.text, tuple(settled.used[number - 1] for number in again.used))
