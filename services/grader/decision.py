"""What a retrieval is worth and where the job goes next. Pure.

    correct     enough passages of at least `upper`                   answer from them
    ambiguous   neither, or the judge could not tell                  keep the rest, and search the web for more
    incorrect   nothing was found, or every passage is below `lower`  drop them and search the web

An ungraded passage is never counted as irrelevant, and never makes a retrieval correct. The web is searched once in a
job. Where it does not help either, or may not be searched, the next hop asks for what is missing, if the job has one.

That is the paper's rule (Yan et al. 2024, arXiv 2401.15884). The counting rule looks only at how many there are: enough
relevant ones answer alone; else relevant and partial ones together, if they are enough; else the web is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from services.grader.strips import refine
from shared.contracts import (
    Evidence,
    Generate,
    Grade,
    Header,
    Passage,
    PassageGrade,
    Relevance,
    Rewrite,
    SearchWeb,
    StageUsage,
    TrailPassage,
    TrailStep,
    Verdict,
)

Rule: TypeAlias = Literal["paper", "counting"]
Next: TypeAlias = Generate | SearchWeb | Rewrite


@dataclass(frozen=True, slots=True)
class GradingPolicy:
    """Rule and thresholds of the decision: scores in [0, 1], `lower` <= `upper`."""

    rule: Rule = "paper"

    upper: float = 0.7
    lower: float = 0.3
    min_correct: int = 1
    """Passages that are enough."""
    max_evidence: int = 20


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on a retrieval, and why, for the trail."""

    verdict: Verdict
    reason: str
    enough: bool
    """Whether to answer from what there is; else the web is searched, where it may be."""
    least: float = 0.0
    """Score that a graded passage must have to be kept."""


class Graded(Protocol):
    """What a judge hands over: `grades[i]` belongs to passage i."""

    @property
    def grades(self) -> tuple[PassageGrade, ...]: ...
    @property
    def usage(self) -> StageUsage: ...
    @property
    def degraded(self) -> tuple[str, ...]: ...


class Refined(Protocol):
    """What a refiner hands over: `strips[i]` belongs to evidence i."""

    @property
    def strips(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def usage(self) -> StageUsage | None: ...
    @property
    def degraded(self) -> tuple[str, ...]: ...


def decide(grades: Sequence[PassageGrade], policy: GradingPolicy) -> Decision:
    """The verdict on passages with these grades."""
    scores = [grade.score for grade in grades if grade.score is not None]
    ungraded = len(grades) - len(scores)
    good = sum(score >= policy.upper for score in scores)
    if not grades:
        return Decision("incorrect", "nothing was found", enough=False)
    if not scores:
        return Decision("ambiguous", f"none of {len(grades)} passages could be graded", enough=False)
    if good >= policy.min_correct:
        reason = f"{good} of {len(grades)} passages score at least {policy.upper:g}"
        return Decision("correct", reason, enough=True, least=policy.upper if policy.rule == "counting" else 0.0)
    if max(scores) < policy.lower and not ungraded:
        return Decision("incorrect", f"all of {len(grades)} passages score below {policy.lower:g}", enough=False)
    fair = sum(score >= policy.lower for score in scores)
    if policy.rule == "counting" and fair >= policy.min_correct:
        return Decision("ambiguous", f"{fair} of {len(grades)} passages score at least {policy.lower:g}", enough=True)
    short = f"{good} of {len(grades)} passages score at least {policy.upper:g}, the best {max(scores):.2f}"
    return Decision("ambiguous", f"{short}; {ungraded} ungraded" if ungraded else short, enough=False)


def settled(grades: Sequence[PassageGrade], policy: GradingPolicy) -> bool:
    """Whether the retrieval is correct already, whatever the passages without a grade are worth."""
    return sum(grade.score is not None and grade.score >= policy.upper for grade in grades) >= policy.min_correct


def relevance_of(score: float, policy: GradingPolicy) -> Relevance:
    """The word for a score. Models contradict their own scores, so theirs is not asked."""
    if score >= policy.upper:
        return "relevant"
    return "partial" if score >= policy.lower else "irrelevant"


def admitted(msg: Grade) -> Grade:
    """The command without passages that its principal may not read (the rights, checked again) or that are graded.

    Evidence that an earlier search left ungraded gives way where its passage came again: it is judged now.
    """
    may_read = msg.header.principal.may_read
    held = tuple(each for each in msg.evidence if may_read(each.passage))
    graded = {each.passage.passage_id for each in held if each.grade.score is not None}
    passages = tuple(each for each in msg.passages if may_read(each) and each.passage_id not in graded)
    again = {each.passage_id for each in passages}
    evidence = tuple(each for each in held if each.passage.passage_id not in again)
    return msg.model_copy(update={"passages": passages, "evidence": evidence})


def judged_question(msg: Grade) -> str:
    """What passages are judged by. "And for students?" says nothing by itself; the first query is whole."""
    return msg.queries[0] if msg.asked.history else msg.asked.question


def affordable_calls(header: Header) -> int:
    """Model calls that the judge may make; none where tokens or money are spent."""
    return 0 if header.budget.spent else header.budget.model_calls


def route(msg: Grade, graded: Graded, policy: GradingPolicy) -> Next:
    """Where the job goes with these grades, and with which evidence.

    Evidence of earlier searches is kept as it was graded then; the verdict is that of everything together.
    """
    grades = tuple(_with_relevance(grade, policy) for grade in graded.grades)
    decision = decide([*(each.grade for each in msg.evidence), *grades], policy)
    kept = () if decision.verdict == "incorrect" else _kept(msg, grades)
    evidence = merged(_at_least(decision.least, (*msg.evidence, *kept)), policy.max_evidence)
    header = msg.header.model_copy(update={"trail": annotated(msg, grades, decision)}).updated(
        usage=graded.usage, degraded=graded.degraded
    )
    if not decision.enough and _web_is_left(msg):
        return SearchWeb(
            header=header,
            asked=msg.asked,
            route=msg.route,
            queries=msg.queries,
            verdict=decision.verdict,
            evidence=evidence,
        )
    if not decision.enough and _hop_is_left(msg):
        hop = header.updated(hop=header.hop + 1)
        return Rewrite(header=hop, asked=msg.asked, verdict=decision.verdict, evidence=evidence)
    return Generate(header=header, asked=msg.asked, route=msg.route, verdict=decision.verdict, evidence=evidence)


def _web_is_left(msg: Grade) -> bool:
    """Whether the web may be searched and was not yet: the question is the same on every hop."""
    searched = msg.searched_web or any(timing.stage == "websearch" for timing in msg.header.timings)
    return msg.asked.web != "off" and not searched


def _hop_is_left(msg: Grade) -> bool:
    """Whether the index may be asked again; where the web alone is wanted, a hop would search nothing."""
    return msg.asked.web != "only" and msg.header.hop + 1 < msg.asked.max_hops


def fresh_evidence(msg: Grade, command: Next) -> tuple[Evidence, ...]:
    """The evidence on its way that this search brought."""
    brought = {passage.passage_id for passage in msg.passages}
    return tuple(each for each in command.evidence if each.passage.passage_id in brought)


def with_strips(command: Next, fresh: Sequence[Evidence], refined: Refined) -> Next:
    """The command with these strips in the fresh evidence, and what it took to find them."""
    strips = {each.passage.passage_id: its for each, its in zip(fresh, refined.strips, strict=True)}
    evidence = tuple(
        each.model_copy(update={"strips": strips.get(each.passage.passage_id, each.strips)})
        for each in command.evidence
    )
    header = command.header.updated(usage=refined.usage, degraded=refined.degraded)
    return command.model_copy(update={"header": header, "evidence": evidence})


def _with_relevance(grade: PassageGrade, policy: GradingPolicy) -> PassageGrade:
    return grade.model_copy(update={"relevance": None if grade.score is None else relevance_of(grade.score, policy)})


def _kept(msg: Grade, grades: Sequence[PassageGrade]) -> tuple[Evidence, ...]:
    """Every passage but the irrelevant, refined. An answer may need the partial ones beside the relevant."""
    return tuple(
        Evidence(passage=passage, grade=grade, strips=refine(judged_question(msg), msg.header.language, passage))
        for passage, grade in zip(msg.passages, grades, strict=True)
        if grade.relevance != "irrelevant"
    )


def _at_least(score: float, evidence: Sequence[Evidence]) -> list[Evidence]:
    """The evidence of this grade or better; of none where any will do, not even a grade."""
    return [each for each in evidence if not score or (each.grade.score or 0.0) >= score]


def merged(evidence: Sequence[Evidence], limit: int) -> tuple[Evidence, ...]:
    """The best `limit`, best first, each passage once: by grade, the ungraded after them by their retrieval score."""
    best: dict[str, Evidence] = {}
    for each in sorted(evidence, key=_rank, reverse=True):
        best.setdefault(each.passage.passage_id, each)
    return tuple(best.values())[:limit]


def _rank(evidence: Evidence) -> tuple[bool, float, float]:
    score = evidence.grade.score
    return score is not None, score or 0.0, evidence.passage.score


def annotated(msg: Grade, grades: Sequence[PassageGrade], decision: Decision) -> tuple[TrailStep, ...]:
    """The trail with grades and verdict in the step that brought these passages; a new step where none did."""
    by_id = {each.passage.passage_id: each.grade for each in msg.evidence}
    by_id |= {passage.passage_id: grade for passage, grade in zip(msg.passages, grades, strict=True)}
    trail = list(msg.header.trail)
    place = _step_of(msg)
    if place is None:
        place = len(trail)
        found = tuple(map(_remembered, msg.passages))
        trail.append(TrailStep(hop=msg.header.hop, route=msg.route, queries=msg.queries, passages=found))
    trail[place] = trail[place].model_copy(
        update={
            "passages": tuple(_marked(each, by_id.get(each.passage_id)) for each in trail[place].passages),
            "verdict": decision.verdict,
            "reason": decision.reason,
        }
    )
    return tuple(trail)


def _step_of(msg: Grade) -> int | None:
    """The last step of this hop that brought these passages; without any, the last one that nobody judged."""
    ids = {passage.passage_id for passage in msg.passages}
    for place in reversed(range(len(msg.header.trail))):
        step = msg.header.trail[place]
        brought = {each.passage_id for each in step.passages}
        if step.hop == msg.header.hop and (ids & brought if ids else step.verdict is None):
            return place
    return None


def _remembered(passage: Passage) -> TrailPassage:
    return TrailPassage(passage_id=passage.passage_id, origin=passage.origin, score=passage.score, query=passage.query)


def _marked(passage: TrailPassage, grade: PassageGrade | None) -> TrailPassage:
    if grade is None:
        return passage
    return passage.model_copy(update={"grade": grade.score, "relevance": grade.relevance, "reason": grade.reason})
