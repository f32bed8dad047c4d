"""The cascade: what the cheap judge decides, what the costly one is asked, and how its bounds are chosen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import ValidationError

from evals.cascade import cascade_figures, choose
from services.grader import prompts
from shared.clients.judge import Enough, Grading, open_judge
from shared.clients.judge.cascade import CascadeJudge
from shared.contracts import Passage, PassageGrade, StageUsage
from shared.settings import JudgeSettings, LlmSettings

NOW = 1000.0


class FakeJudge:
    """Gives each passage the score told for its id, and remembers what it was asked."""

    def __init__(self, name: str, *, calls: int = 0, degraded: tuple[str, ...] = (), **scores: float | None) -> None:
        self.name, self.version = name, f"{name}-1"
        self.scores, self.usage, self.degraded = scores, StageUsage(stage="grader", calls=calls), degraded
        self.asked: list[tuple[list[str], float, int | None]] = []
        self.enough: Enough | None = None
        self.is_closed = False

    async def grade_all(
        self,
        question: str,
        language: str,
        passages: Sequence[Passage],
        *,
        deadline: float,
        max_calls: int | None = None,
        enough: Enough | None = None,
    ) -> Grading:
        ids = [each.passage_id for each in passages]
        self.asked.append((ids, deadline, max_calls))
        self.enough = enough
        return Grading(
            tuple(PassageGrade(score=self.scores[each], reason="r") for each in ids), self.usage, self.degraded
        )

    async def aclose(self) -> None:
        self.is_closed = True


def passages(names: str) -> list[Passage]:
    return [Passage(passage_id=name, document_id="d", title="", uri="", text="t") for name in names]


def cascade(cheap: FakeJudge, costly: FakeJudge, *moments: float) -> CascadeJudge:
    clock = iter(moments or (NOW, NOW))
    return CascadeJudge(cheap, costly, low=0.2, high=0.9, clock=lambda: next(clock))


async def test_only_doubtful_and_ungraded_passages_go_to_the_costly_judge() -> None:
    cheap = FakeJudge("cheap", a=0.2, b=0.21, c=None, d=0.89, e=0.9)
    costly = FakeJudge("costly", calls=3, b=0.95, c=0.1, d=0.4)
    grading = await cascade(cheap, costly).grade_all("?", "en", passages("abcde"), deadline=NOW + 40, max_calls=7)
    assert [grade.score for grade in grading.grades] == [0.2, 0.95, 0.1, 0.4, 0.9]
    assert costly.asked == [(["b", "c", "d"], NOW + 40, 7)]
    assert grading.usage.calls == 3


async def test_without_doubt_the_costly_judge_is_not_asked() -> None:
    costly = FakeJudge("costly")
    grading = await cascade(FakeJudge("cheap", a=0.1, b=0.97), costly).grade_all(
        "?", "en", passages("ab"), deadline=NOW + 40
    )
    assert [grade.score for grade in grading.grades] == [0.1, 0.97]
    assert costly.asked == []


async def test_where_the_costly_judge_fails_a_passage_stays_ungraded_and_says_what_the_cheap_one_thought() -> None:
    costly = FakeJudge("costly", degraded=("judge unavailable",), a=None, b=None)
    cheap = FakeJudge("cheap", degraded=("words alone",), a=0.85, b=None)
    grading = await cascade(cheap, costly).grade_all("?", "en", passages("ab"), deadline=NOW + 40)
    assert [(grade.score, grade.reason) for grade in grading.grades] == [(None, "r; cheap: 0.85"), (None, "r")]
    assert grading.degraded == ("words alone", "judge unavailable")


async def test_both_judges_together_take_half_of_the_time() -> None:
    cheap, costly = FakeJudge("cheap", a=0.5), FakeJudge("costly", a=0.5)
    took = 8.0
    await cascade(cheap, costly, NOW, NOW + took).grade_all("?", "en", passages("a"), deadline=NOW + 40)
    cheap_may_take = (cheap.asked[0][1] - NOW) / 2
    costly_may_take = (costly.asked[0][1] - (NOW + took)) / 2
    assert cheap_may_take == 10
    assert took + costly_may_take == 20


async def test_what_is_sure_counts_towards_enough() -> None:
    cheap, costly = FakeJudge("cheap", a=0.95, b=0.5), FakeJudge("costly", b=0.5)
    seen: list[list[float | None]] = []

    def enough(grades: Sequence[PassageGrade]) -> bool:
        seen.append([grade.score for grade in grades])
        return True

    await cascade(cheap, costly).grade_all("?", "en", passages("ab"), deadline=NOW + 40, enough=enough)
    assert costly.enough is not None
    assert costly.enough([PassageGrade(score=0.3)])
    assert seen == [[0.95, 0.3]]


async def test_its_version_changes_with_either_judge_and_with_the_bounds() -> None:
    cheap, costly = FakeJudge("cheap"), FakeJudge("costly")
    judge = cascade(cheap, costly)
    assert judge.name == "cheap, then costly"
    assert judge.version == "cheap-1+costly-1 (0.2 to 0.9)"
    await judge.aclose()
    assert cheap.is_closed
    assert costly.is_closed


async def test_the_settings_turn_it_on_where_there_is_a_model() -> None:
    off = open_judge(JudgeSettings(base_url="http://localhost:9/v1"), LlmSettings(), None, prompts=prompts)
    on = open_judge(JudgeSettings(base_url="http://localhost:9/v1", cascade=True), LlmSettings(), None, prompts=prompts)
    alone = open_judge(JudgeSettings(cascade=True), LlmSettings(), None, prompts=prompts)
    assert [judge.name for judge in (off, on, alone)] == ["default", "embedded, then default", "embedded"]
    for judge in (off, on, alone):
        await judge.aclose()


def test_bounds_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match="CAIRN_JUDGE_CASCADE_LOW"):
        JudgeSettings(cascade_low=0.9, cascade_high=0.2)


def test_what_it_saves_and_costs_by_hand() -> None:
    scores = [0.1, 0.2, 0.3, 0.5, 0.9, 0.95]
    labels = [False, True, True, False, False, True]
    assert cascade_figures(scores, labels, (0.2, 0.9)) == {"asked": 2 / 6, "wrong": 2 / 6, "wrong alone": 2 / 4}
    assert cascade_figures([0.5], [True], (0.2, 0.9)) == {"asked": 1.0, "wrong": 0.0, "wrong alone": None}


def test_no_wrong_allowed_asks_from_the_lowest_relevant_to_the_highest_irrelevant() -> None:
    low, high = choose([0.1, 0.2, 0.3, 0.6, 0.8, 0.9], [False, False, True, False, True, True], max_wrong=0.0)
    assert (0.2 <= low < 0.3, 0.6 < high <= 0.8) == (True, True)


@given(
    some.lists(some.floats(0.01, 0.99), min_size=30, max_size=60),
    some.lists(some.floats(0.01, 0.99), min_size=30, max_size=60),
    some.sampled_from([0.0, 0.02, 0.1]),
)
def test_chosen_bounds_keep_to_the_loss_and_a_greater_loss_asks_no_more(
    relevant: list[float], irrelevant: list[float], max_wrong: float
) -> None:
    scores, labels = [*relevant, *irrelevant], [True] * len(relevant) + [False] * len(irrelevant)
    found = cascade_figures(scores, labels, choose(scores, labels, max_wrong))
    strict = cascade_figures(scores, labels, choose(scores, labels, 0.0))
    assert found["wrong"] is not None
    assert found["asked"] is not None
    assert strict["asked"] is not None
    assert found["wrong"] <= max_wrong
    assert found["asked"] <= strict["asked"]
