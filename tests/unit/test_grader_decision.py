"""The grader's decision, read as its specification."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from services.grader.decision import (
    GradingPolicy,
    Next,
    admitted,
    affordable_calls,
    decide,
    judged_question,
    merged,
    route,
)
from services.grader.settings import GraderSettings
from shared.contracts import (
    Budget,
    Evidence,
    Generate,
    Grade,
    Header,
    Passage,
    PassageGrade,
    Principal,
    Question,
    Rewrite,
    SearchWeb,
    StageTiming,
    StageUsage,
    TrailPassage,
    TrailStep,
    Turn,
    WebPolicy,
)

POLICY = GradingPolicy(upper=0.7, lower=0.3, min_correct=1)
UNGRADED = None
NOTHING_SPENT = StageUsage(stage="grader")


@dataclass(frozen=True)
class Graded:
    grades: tuple[PassageGrade, ...]
    usage: StageUsage = NOTHING_SPENT
    degraded: tuple[str, ...] = ()


def grades(*scores: float | None) -> tuple[PassageGrade, ...]:
    return tuple(PassageGrade(score=score) for score in scores)


def passage(
    name: str, score: float = 0.0, *, tenant: str = "public", text: str = "Tents go back in 30 days."
) -> Passage:
    return Passage(
        passage_id=name,
        document_id="d",
        title="Returns",
        uri="file:r",
        text=text,
        score=score,
        language="en",
        tenant=tenant,
    )


def evidence(name: str, score: float | None, retrieval: float = 0.0) -> Evidence:
    return Evidence(passage=passage(name, retrieval), grade=PassageGrade(score=score), strips=("Tents",))


def command(
    *names: str,
    earlier: tuple[Evidence, ...] = (),
    web: WebPolicy = "auto",
    searched_web: bool = False,
    trail: tuple[TrailStep, ...] = (),
    principal: Principal | None = None,
) -> Grade:
    return Grade(
        header=Header(
            job_id="j", entry_id="1-0", submitted_at=0, deadline=60, trail=trail, principal=principal or Principal()
        ),
        asked=Question(question="How long may I return a tent?", web=web),
        route="factual",
        queries=("return a tent",),
        passages=tuple(passage(name) for name in names),
        evidence=earlier,
        searched_web=searched_web,
    )


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([], "incorrect"),  # nothing was found
        ([0.7], "correct"),  # upper is reached
        ([0.69], "ambiguous"),
        ([0.9, 0.0, 0.0], "correct"),  # one good passage is enough, however bad the others
        ([0.3], "ambiguous"),  # lower is not below lower
        ([0.29, 0.1], "incorrect"),  # all are below lower
        ([0.5, 0.1], "ambiguous"),
        ([UNGRADED], "ambiguous"),
        ([UNGRADED, UNGRADED], "ambiguous"),  # never correct, however many
        ([UNGRADED, 0.1], "ambiguous"),  # ungraded is not irrelevant
        ([UNGRADED, 0.9], "correct"),
    ],
)
def test_verdict(scores: list[float | None], verdict: str) -> None:
    assert decide(grades(*scores), POLICY).verdict == verdict


@pytest.mark.parametrize(
    ("scores", "verdict", "kept", "goes_to"),
    [
        ([], "incorrect", [], SearchWeb),
        ([0.9, 0.8, 0.5, 0.1], "correct", [0.9, 0.8], Generate),  # two high ones: those alone
        ([0.9, 0.5, 0.4, 0.1], "ambiguous", [0.9, 0.5, 0.4], Generate),  # else high and medium, by score
        ([0.4, 0.5, 0.1], "ambiguous", [0.5, 0.4], Generate),
        ([0.9, 0.1, 0.1], "ambiguous", [0.9], SearchWeb),  # one is not enough: search on
        ([0.2, 0.1], "incorrect", [], SearchWeb),
        ([UNGRADED, 0.9], "ambiguous", [0.9, UNGRADED], SearchWeb),  # ungraded ones don't count
        ([UNGRADED, 0.9, 0.8], "correct", [0.9, 0.8], Generate),
        ([UNGRADED, UNGRADED], "ambiguous", [UNGRADED, UNGRADED], SearchWeb),
    ],
)
def test_the_counting_rule(
    scores: list[float | None], verdict: str, kept: list[float | None], goes_to: type[Generate | SearchWeb]
) -> None:
    counting = GradingPolicy(rule="counting", min_correct=2)
    sent = route(command(*(f"p{n}" for n in range(len(scores)))), Graded(grades(*scores)), counting)
    assert isinstance(sent, goes_to)
    assert (sent.verdict, [each.grade.score for each in sent.evidence]) == (verdict, kept)


def test_more_than_one_good_passage_may_be_asked_for() -> None:
    two = GradingPolicy(min_correct=2)
    assert decide(grades(0.9, UNGRADED, 0.1), two).verdict == "ambiguous"
    assert decide(grades(0.9, 0.7, 0.1), two).verdict == "correct"


@pytest.mark.parametrize(
    ("scores", "web", "searched_web", "next_command", "kept"),
    [
        ((0.9, 0.1), "auto", False, Generate, ["p0"]),
        ((0.9, 0.5), "auto", False, Generate, ["p0", "p1"]),  # the partial after the relevant
        ((0.5, 0.1), "auto", False, SearchWeb, ["p0"]),  # ambiguous keeps what is not irrelevant, and searches
        ((0.1, 0.2), "auto", False, SearchWeb, []),  # incorrect drops
        ((UNGRADED, 0.5), "auto", False, SearchWeb, ["p1", "p0"]),
        ((), "auto", False, SearchWeb, []),
        ((0.5, 0.1), "off", False, Generate, ["p0"]),
        ((0.1, 0.1), "off", False, Generate, []),
        ((0.5, 0.1), "auto", True, Generate, ["p0"]),  # the web is searched once
        ((0.1,), "only", True, Generate, []),
    ],
)
def test_route(
    scores: tuple[float | None, ...],
    web: WebPolicy,
    searched_web: bool,
    next_command: type[Generate] | type[SearchWeb],
    kept: list[str],
) -> None:
    msg = command(*(f"p{n}" for n in range(len(scores))), web=web, searched_web=searched_web)
    gone = route(msg, Graded(grades(*scores)), POLICY)
    assert type(gone) is next_command
    assert [each.passage.passage_id for each in gone.evidence] == kept


@pytest.mark.parametrize(
    ("score", "hop", "max_hops", "web", "web_seen", "goes_to"),
    [
        # enough is enough
        (0.9, 0, 3, "auto", False, Generate),
        (0.9, 0, 3, "off", False, Generate),
        # the web first, once in a job
        (0.5, 0, 3, "auto", False, SearchWeb),
        (0.5, 1, 3, "auto", False, SearchWeb),
        (0.5, 0, 3, "auto", True, Rewrite),
        # then another hop, while there is one
        (0.5, 0, 2, "off", False, Rewrite),
        (0.1, 1, 3, "off", False, Rewrite),
        (0.5, 2, 3, "off", False, Generate),
        (0.5, 0, 1, "off", False, Generate),
        (0.5, 1, 2, "auto", True, Generate),
        # a hop for the web alone would search nothing
        (0.5, 0, 3, "only", True, Generate),
    ],
)
def test_another_hop_follows_where_nothing_else_helps(
    *, score: float, hop: int, max_hops: int, web: WebPolicy, web_seen: bool, goes_to: type[Next]
) -> None:
    msg = command("new", earlier=(evidence("old", 0.4),), web=web)
    timings = (StageTiming(stage="websearch", hop=0, wait_s=0, work_s=0),) if web_seen else ()
    header = msg.header.model_copy(update={"hop": hop, "timings": timings})
    asked = msg.asked.model_copy(update={"max_hops": max_hops})
    gone = route(msg.model_copy(update={"header": header, "asked": asked}), Graded(grades(score)), POLICY)
    assert type(gone) is goes_to
    assert gone.header.hop == (hop + 1 if goes_to is Rewrite else hop)
    assert gone.verdict == ("correct" if score == 0.9 else "ambiguous")
    assert [each.passage.passage_id for each in gone.evidence] == (["old"] if score == 0.1 else ["new", "old"])
    assert gone.header.trail[-1].passages[0].grade == score


def test_relevance_follows_from_the_score_whatever_the_model_said() -> None:
    said = (PassageGrade(score=0.9, relevance="irrelevant"), PassageGrade(score=0.4), PassageGrade(reason="timed out"))
    kept = route(command("a", "b", "c"), Graded(said), POLICY).evidence
    assert [each.grade.relevance for each in kept] == ["relevant", "partial", None]


def test_earlier_evidence_counts_in_a_bad_web_round() -> None:
    msg = command("web", earlier=(evidence("old", 0.5),), searched_web=True)
    gone = route(msg, Graded(grades(0.1)), POLICY)
    assert gone.verdict == "ambiguous"
    assert [each.passage.passage_id for each in gone.evidence] == ["old"]


def test_evidence_is_merged_best_first_and_once() -> None:
    found = merged([evidence("a", 0.4), evidence("b", None, 9.0), evidence("a", 0.8), evidence("c", 0.6)], limit=20)
    assert [(each.passage.passage_id, each.grade.score) for each in found] == [("a", 0.8), ("c", 0.6), ("b", None)]
    assert len(merged(found, limit=2)) == 2


def test_passages_of_others_are_dropped_before_anybody_sees_them() -> None:
    msg = command("mine", principal=Principal(tenant="acme"))  # the passage is the public tenant's
    assert admitted(msg).passages == ()


def test_what_is_graded_is_not_graded_again_and_what_is_not_is() -> None:
    msg = admitted(command("good", "unsure", "new", earlier=(evidence("good", 0.9), evidence("unsure", UNGRADED))))
    assert [each.passage_id for each in msg.passages] == ["unsure", "new"]
    assert [each.passage.passage_id for each in msg.evidence] == ["good"]


def test_a_follow_up_is_judged_by_its_query_which_is_the_whole_question() -> None:
    msg = command("a")
    assert judged_question(msg) == "How long may I return a tent?"
    follow_up = msg.asked.model_copy(update={"history": (Turn(role="user", content="How long for a tent?"),)})
    assert judged_question(msg.model_copy(update={"asked": follow_up})) == "return a tent"


def test_grades_and_verdict_go_into_the_step_that_brought_the_passages() -> None:
    def step(name: str, hop: int) -> TrailStep:
        return TrailStep(hop=hop, passages=(TrailPassage(passage_id=name, origin="index", score=1.0),))

    msg = command("a", trail=(step("a", 0), step("b", 0)))
    first, second = route(msg, Graded(grades(0.9)), POLICY).header.trail
    assert (first.verdict, first.passages[0].grade, first.passages[0].relevance) == ("correct", 0.9, "relevant")
    assert "1 of 1 passages" in first.reason
    assert second == step("b", 0)


def test_a_search_that_left_no_step_gets_one() -> None:
    (step,) = route(command("a"), Graded(grades(0.1)), POLICY).header.trail
    assert (step.verdict, step.queries, step.passages[0].grade) == ("incorrect", ("return a tent",), 0.1)


def test_usage_and_what_was_missing_are_booked() -> None:
    usage = StageUsage(stage="grader", calls=1, prompt_tokens=10, completion_tokens=2)
    header = route(command("a"), Graded(grades(0.9), usage, ("judge unavailable",)), POLICY).header
    assert header.usage == (usage,)
    assert header.degraded == ("judge unavailable",)
    assert header.budget == Budget(model_calls=59, tokens=99_988)


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [
        (Budget(model_calls=60), 60),
        (Budget(model_calls=0), 0),
        (Budget(model_calls=60, tokens=0), 0),
        (Budget(model_calls=60, cost=0.0), 0),
        (Budget(model_calls=60, cost=0.1), 60),
    ],
)
def test_calls_are_affordable_while_calls_tokens_and_money_are_left(budget: Budget, allowed: int) -> None:
    header = Header(job_id="j", entry_id="1-0", submitted_at=0, deadline=60, budget=budget)
    assert affordable_calls(header) == allowed


def test_settings_give_the_policy_and_keep_thresholds_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_GRADER_UPPER", "0.8")
    assert GraderSettings().policy == GradingPolicy(upper=0.8)
    monkeypatch.setenv("CAIRN_GRADER_LOWER", "0.9")
    with pytest.raises(ValidationError, match="CAIRN_GRADER_LOWER"):
        GraderSettings()
