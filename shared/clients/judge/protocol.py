"""The judge as its callers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from shared.contracts import Passage, PassageGrade, StageUsage

STAGE = "grader"
"""The stage that a judge's calls and tokens are booked on."""


Enough: TypeAlias = Callable[[Sequence[PassageGrade]], bool]
"""Whether these grades settle the decision, whatever the passages still missing are worth."""


@dataclass(frozen=True, slots=True)
class Grading:
    """What the judge said. `grades[i]` belongs to `passages[i]`; a passage it could not grade has no score."""

    grades: tuple[PassageGrade, ...]
    usage: StageUsage
    degraded: tuple[str, ...] = ()


class Judge(Protocol):
    """Grades passages. An endpoint that is down or set up wrongly raises nothing: what can't be graded is ungraded."""

    @property
    def name(self) -> str:
        """The model."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same passage might be graded differently: prompt or coefficients."""
        ...

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
        """Grade every passage by itself.

        `language` is the question's (ISO 639-1). `deadline` is a moment, in seconds since the epoch; the judge takes
        at most half of the time until then. At most `max_calls` replies are asked for; None sets no bound. Once
        `enough` says so, an endpoint that fails a lot is spared: what still fails may stay ungraded.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class JudgePrompts(Protocol):
    """How a chat model is asked to judge; `services/grader/prompts.py` is one."""

    @property
    def VERSION(self) -> str: ...  # noqa: N802
    @property
    def REPLY_SCHEMA(self) -> Mapping[str, Any]: ...  # noqa: N802

    @property
    def BATCH_SCHEMA(self) -> Mapping[str, Any]: ...  # noqa: N802

    def judging(self, question: str, passage: Passage, *, fence: str) -> list[dict[str, str]]:
        """The conversation that asks for one passage's grade. `fence` is a random word that no passage can know."""
        ...

    def judging_many(self, question: str, passages: Sequence[Passage], *, fence: str) -> list[dict[str, str]]:
        """The one that asks for the grades of several, numbered from 1."""
        ...
