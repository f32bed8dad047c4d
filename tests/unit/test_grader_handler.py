"""The grader's handler, with a judge that says what it is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from services.grader.decision import GradingPolicy
from services.grader.handler import grade
from shared.clients.judge import Enough, Grading
from shared.contracts import Evidence, Grade, Header, Passage, PassageGrade, Principal, Question, StageUsage
from shared.runtime.metrics import VERDICTS


class SayingJudge:
    """Gives every passage this score, and remembers what it was asked."""

    name, version = "saying", "1"

    def __init__(self, score: float) -> None:
        self.score = score
        self.asked: list[tuple[str, str, list[str], float, int | None]] = []
        self.settled: list[bool] = []

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
        assert enough is not None
        self.settled = [enough([PassageGrade(score=score)]) for score in (0.69, 0.7, None)]
        self.asked.append((question, language, [each.passage_id for each in passages], deadline, max_calls))
        return Grading(tuple(PassageGrade(score=self.score) for _ in passages), StageUsage(stage="grader"))

    async def aclose(self) -> None: ...


def passage(name: str, tenant: str) -> Passage:
    return Passage(passage_id=name, document_id="d", title="t", uri="u", text="Yes.", tenant=tenant)


async def test_the_judge_sees_what_the_principal_may_read() -> None:
    header = Header(
        job_id="j", entry_id="1-0", submitted_at=0, deadline=60, language="fr", principal=Principal(tenant="acme")
    )
    msg = Grade(
        header=header,
        asked=Question(question="Quoi ?"),
        route="factual",
        queries=("quoi",),
        passages=(passage("mine", "acme"), passage("theirs", "other")),
    )
    judge = SayingJudge(0.9)
    before = VERDICTS.labels("correct")._value.get()
    command = await grade(msg, judge=judge, policy=GradingPolicy())
    assert judge.asked == [("Quoi ?", "fr", ["mine"], 60, 60)]
    assert judge.settled == [False, True, False]
    assert command.verdict == "correct"
    assert [each.passage.passage_id for each in command.evidence] == ["mine"]
    assert command.header.versions == {"judge": "saying@1"}
    assert VERDICTS.labels("correct")._value.get() == before + 1


@pytest.mark.parametrize(("hop", "settled"), [(0, [True, True, True]), (1, [False, True, False])])
async def test_what_earlier_hops_found_leaves_nothing_unjudged(hop: int, settled: list[bool]) -> None:
    """A hop was made because what is known is not enough, however well it was graded."""
    known = Evidence(passage=passage("known", "public"), grade=PassageGrade(score=0.9), strips=("Yes.",))
    msg = Grade(
        header=Header(job_id="j", entry_id="1-0", submitted_at=0, deadline=60, hop=hop),
        asked=Question(question="What?", max_hops=2),
        route="factual",
        queries=("what",),
        passages=(passage("new", "public"),),
        evidence=(known,),
    )
    judge = SayingJudge(0.5)
    await grade(msg, judge=judge, policy=GradingPolicy())
    assert judge.settled == settled
