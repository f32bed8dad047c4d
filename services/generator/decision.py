"""Which way a question is answered: in silence, by citations, by a written answer, or after another search. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from services.generator.settings import AnsweringPolicy
from shared.citations import citations_of, shortened
from shared.contracts import Answered, Citation, Evidence, Generate, Header, Rewrite, Verdict
from shared.language import SPOKEN

Course = Literal["talk", "abstain", "citations", "write"]

UNGRADED: Final = 0.3
"""Confidence in a passage that no judge saw."""
AMBIGUOUS_FACTOR: Final = 0.8
CAUSE_CHARS: Final = 120
HOP_NEEDS_S: Final = 5.0
"""Left to the deadline, for another search to be worth it."""
SWITCHED_OFF: Final = "generation is switched off: citations only"

_FRIENDLY: Final = {
    "en": "Happy to help! Ask me about the documents: I answer from them, and say where it stands.",
    "fr": "Avec plaisir ! Posez-moi une question sur les documents : j'y réponds en citant mes sources.",
    "ru": "Рад помочь! Спросите о том, что есть в документах: я отвечу и укажу, где это написано.",
}
_NOTHING_THERE: Final = {
    "en": "I can't answer this from the documents{place}. Passages looked at: {count}. Searched for: {queries}. "
    "Nothing there answers the question.",
    "fr": "Je ne peux pas répondre à cette question d'après les documents{place}. Passages examinés : {count}. "
    "Recherches : {queries}. Rien n'y répond à la question.",
    "ru": "По документам{place} ответить на этот вопрос нельзя. Просмотрено фрагментов: {count}. Искали: {queries}. "
    "Ответа на вопрос там нет.",
}
_ASK: Final = {"en": " You can ask: {}.", "fr": " Vous pouvez demander à : {}.", "ru": " Можно спросить: {}."}
_QUOTED: Final = {"en": "“{}”", "fr": "« {} »", "ru": "«{}»"}


@dataclass(frozen=True)
class Written:
    """A usable reply: every `[n]` in `answer` is `citations[n - 1]`, which rests on `evidence[n - 1]`."""

    answer: str
    citations: tuple[Citation, ...]
    evidence: tuple[Evidence, ...]
    degraded: tuple[str, ...] = ()


def phrase_language(language: str) -> str:
    """The language of fixed phrases for a question in `language`: the same if spoken, else English."""
    return language if language in SPOKEN else "en"


def readable(msg: Generate) -> tuple[Evidence, ...]:
    """The evidence that the asker may read, best grade first (promise 5: checked again, whoever sent it), each once."""
    allowed = {e.passage.passage_id: e for e in msg.evidence if msg.header.principal.may_read(e.passage)}
    return tuple(sorted(allowed.values(), key=lambda each: -trust(each)))


def trust(evidence: Evidence) -> float:
    """Grade of the passage in [0, 1]; `UNGRADED` without one."""
    return UNGRADED if evidence.grade.score is None else evidence.grade.score


def course(msg: Generate, evidence: Sequence[Evidence], policy: AnsweringPolicy) -> Course:
    """What to do with the evidence that may be read. Ungraded is not weak: with an ungraded passage it is answered."""
    if msg.small_talk or msg.clarification:
        return "talk"
    if msg.verdict == "incorrect" or not evidence:
        return "abstain"
    scores = [each.grade.score for each in evidence if each.grade.score is not None]
    if msg.verdict == "ambiguous" and len(scores) == len(evidence) and max(scores) < policy.answer_from:
        return "abstain"
    return "citations" if msg.asked.answer == "citations" else "write"


def weight(term: str) -> float:
    """How much a shared term says: 1 to 2 by length for words, 2.5 for what has a digit."""
    return 2.5 if any(character.isdigit() for character in term) else 1.0 + min(len(term), 10) / 10


def confidence(evidence: Iterable[Evidence], verdict: Verdict) -> float:
    """How far to trust an outcome that cites this evidence, in [0, 1]: its best grade, less if ambiguous, or 0."""
    best = max((trust(each) for each in evidence), default=0.0)
    return round(best * (AMBIGUOUS_FACTOR if verdict == "ambiguous" else 1.0), 4)


def talked(msg: Generate, *, now: float) -> Answered:
    """What needs no search: the question back, or a friendly word. Nothing is claimed, so nothing is cited."""
    if msg.clarification:
        return Answered.ending(msg.header, "abstained", now=now, answer=msg.clarification)
    return Answered.ending(msg.header, "answered", now=now, answer=_FRIENDLY[phrase_language(msg.header.language)])


def further(msg: Generate, header: Header, missing: str, evidence: Sequence[Evidence], *, now: float) -> Rewrite | None:
    """The next hop, for what is missing; None where nobody can say what, or hops, budget or time are used up."""
    next_hop = header.hop + 1
    if not missing or next_hop >= msg.asked.max_hops or header.budget.spent or header.deadline - now < HOP_NEEDS_S:
        return None
    return Rewrite(
        header=header.updated(hop=next_hop),
        asked=msg.asked,
        missing=missing,
        verdict=msg.verdict,
        evidence=tuple(evidence),
    )


def abstained(msg: Generate, header: Header, policy: AnsweringPolicy, *, now: float) -> Answered:
    """Silence, with what was looked at and whom to ask, in the language of the question (promise 7)."""
    spoken, collection = phrase_language(header.language), msg.asked.collection
    count = len({passage.passage_id for step in header.trail for passage in step.passages})
    queries = dict.fromkeys(query for step in header.trail for query in step.queries)
    listed = ", ".join(_QUOTED[spoken].format(query) for query in queries) or "–"
    place = f" ({collection})" if collection else ""
    text = _NOTHING_THERE[spoken].format(place=place, count=count, queries=listed)
    if collection in policy.owners:
        text += _ASK[spoken].format(policy.owners[collection])
    return Answered.ending(header, "abstained", now=now, answer=text, verdict=msg.verdict, confidence=0.0)


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


def answered(
    header: Header, verdict: Verdict, written: Written, *, writer: str, now: float, at_most: float = 1.0
) -> Answered:
    """The answer, and how far to trust it: no further than the evidence, and than `at_most`."""
    return Answered.ending(
        header.updated(degraded=written.degraded),
        "answered",
        now=now,
        answer=written.answer,
        citations=written.citations,
        verdict=verdict,
        confidence=min(confidence(written.evidence, verdict), round(at_most, 4)),
        writer=writer,
    )


def citations_only(cause: str) -> str:
    """The mark of an outcome that had to do without the model; of a long cause only the beginning."""
    return f"generator unavailable: citations only ({shortened(' '.join(cause.split()), CAUSE_CHARS)})"
