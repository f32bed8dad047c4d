"""A job that may call no model any more is judged by the embedded judge, and its outcome says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.clients.judge.protocol import Enough, Grading, Judge
from shared.contracts import Passage

SPARED: Final = "no model calls left: judged by the embedded judge"


class SparingJudge:
    """The costly judge where calls may be made, the cheap one, marked, where none may."""

    def __init__(self, cheap: Judge, costly: Judge) -> None:
        self._cheap = cheap
        self._costly = costly

    @property
    def name(self) -> str:
        return self._costly.name

    @property
    def version(self) -> str:
        return self._costly.version

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
        if max_calls != 0:
            return await self._costly.grade_all(
                question, language, passages, deadline=deadline, max_calls=max_calls, enough=enough
            )
        grading = await self._cheap.grade_all(question, language, passages, deadline=deadline)
        marks = (SPARED, *grading.degraded) if passages else ()
        return Grading(grading.grades, grading.usage, marks)

    async def aclose(self) -> None:
        await self._cheap.aclose()
        await self._costly.aclose()
