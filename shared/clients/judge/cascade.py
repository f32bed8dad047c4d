"""A cheap judge first: a chat model is only asked about passages that the cheap one is in doubt about.

Where the costly judge fails, a passage stays ungraded: a doubtful grade must neither drop a passage nor make a
retrieval correct. What the cheap judge said stands in the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from shared.clients.judge.protocol import STAGE, Enough, Grading, Judge
from shared.contracts import Passage, PassageGrade, StageUsage

_CHEAP_SHARE: Final = 0.5
"""The cheap judge works as if the deadline were this near; it takes half of that."""


class CascadeJudge:
    """Keeps grades of the cheap judge up to `low` and from `high` on; the costly one grades the rest.

    `cheap` makes no calls, or few: they are not bounded.
    """

    def __init__(
        self, cheap: Judge, costly: Judge, *, low: float, high: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._cheap = cheap
        self._costly = costly
        self._low, self._high = low, high
        self._clock = clock

    @property
    def name(self) -> str:
        return f"{self._cheap.name}, then {self._costly.name}"

    @property
    def version(self) -> str:
        return f"{self._cheap.version}+{self._costly.version} ({self._low:g} to {self._high:g})"

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
        started = self._clock()
        soon = started + (deadline - started) * _CHEAP_SHARE
        cheap = await self._cheap.grade_all(question, language, passages, deadline=soon)
        grades = list(cheap.grades)
        doubtful = [place for place, grade in enumerate(grades) if self._doubts(grade)]
        if not doubtful:
            return cheap
        sure = [grade for grade in grades if not self._doubts(grade)]
        costly = await self._costly.grade_all(
            question,
            language,
            [passages[place] for place in doubtful],
            # It takes half of the time from now on: both together take half of all.
            deadline=deadline - (self._clock() - started),
            max_calls=max_calls,
            enough=None if enough is None else lambda found: enough([*sure, *found]),
        )
        for place, grade in zip(doubtful, costly.grades, strict=True):
            grades[place] = _with_hint(grade, grades[place], self._cheap.name)
        usage = StageUsage.total(STAGE, [cheap.usage, costly.usage])
        return Grading(tuple(grades), usage, (*cheap.degraded, *costly.degraded))

    async def aclose(self) -> None:
        await self._cheap.aclose()
        await self._costly.aclose()

    def _doubts(self, grade: PassageGrade) -> bool:
        return grade.score is None or self._low < grade.score < self._high


def _with_hint(grade: PassageGrade, doubtful: PassageGrade, said_by: str) -> PassageGrade:
    """The grade; if it is none, with what the cheap judge said of the passage."""
    if grade.score is not None or doubtful.score is None:
        return grade
    return grade.model_copy(update={"reason": f"{grade.reason}; {said_by}: {doubtful.score:.2f}"})
