"""A chat model as judge: one call a passage, all in parallel, under the client's bound on calls in flight."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from prometheus_client import Counter, Histogram

from shared.clients.chat import ChatModel, Completion
from shared.clients.http import RequestRefused
from shared.clients.judge.protocol import STAGE, Grading, JudgePrompts
from shared.clients.judge.replies import read_grade, ungraded
from shared.contracts import Passage, PassageGrade, StageUsage
from shared.errors import CairnError, Misconfigured, TransientError

JUDGE_SECONDS = Histogram(
    "cairn_judge_seconds",
    "One judge call, queueing and retries included.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30),
)
JUDGE_REPLIES = Counter("cairn_judge_replies", "Passages sent to the judge, by what came back.", ("outcome",))

Failure = Literal["unavailable", "unreadable", "unaffordable"]

_TIME_SHARE: Final = 0.5
"""Of the time left to the deadline; the rest is for the web search and the answer."""
_FORMAT_WORDS: Final = ("response_format", "json_schema", "json_object", "guided", "grammar", "schema")
_TOLD: Final[Mapping[Failure, str]] = {
    "unavailable": "judge unavailable",
    "unreadable": "judge replies unreadable",
    "unaffordable": "judge calls spent",
}


@dataclass(frozen=True, slots=True)
class _Verdict:
    """One passage's grade, what it cost, and what went wrong if it has no score."""

    grade: PassageGrade
    completion: Completion | None = None
    failure: Failure | None = None
    setting_at_fault: str = ""


class HttpJudge:
    """Asks for JSON by schema, then by `json_object`, then in words: the first the endpoint takes is remembered."""

    def __init__(
        self, chat: ChatModel, prompts: JudgePrompts, *, max_tokens: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._chat = chat
        self._prompts = prompts
        self._max_tokens = max_tokens
        self._clock = clock
        schema = {"name": "grade", "strict": True, "schema": prompts.REPLY_SCHEMA}
        self._ladder: tuple[dict[str, Any] | None, ...] = (
            {"type": "json_schema", "json_schema": schema},
            {"type": "json_object"},
            None,
        )
        self._rung = 0

    @property
    def name(self) -> str:
        return self._chat.name

    @property
    def version(self) -> str:
        return self._prompts.VERSION

    async def grade_all(
        self,
        question: str,
        language: str,
        passages: Sequence[Passage],
        *,
        deadline: float,
        max_calls: int | None = None,
    ) -> Grading:
        end = self._clock() + max(0.0, deadline - self._clock()) * _TIME_SHARE
        affordable = passages if max_calls is None else passages[:max_calls]
        async with asyncio.TaskGroup() as calls:
            tasks = [calls.create_task(self._judge(question, passage, end)) for passage in affordable]
        spent = _Verdict(ungraded("the job's budget of model calls is spent"), failure="unaffordable")
        verdicts = [*(task.result() for task in tasks), *(spent for _ in passages[len(affordable) :])]
        return Grading(tuple(each.grade for each in verdicts), _usage(verdicts), _degraded(verdicts))

    async def aclose(self) -> None:
        await self._chat.aclose()

    async def _judge(self, question: str, passage: Passage, end: float) -> _Verdict:
        started = time.perf_counter()
        try:
            completion = await self._ask(question, passage, end)
        except TransientError as error:
            verdict = _Verdict(ungraded(f"judge unavailable: {error}"), failure="unavailable")
        except CairnError as error:
            fault = str(error) if isinstance(error, Misconfigured) else ""
            verdict = _Verdict(ungraded(f"judge unavailable: {error}"), failure="unavailable", setting_at_fault=fault)
        else:
            grade = read_grade(completion.text)
            verdict = _Verdict(grade, completion, failure="unreadable" if grade.score is None else None)
        JUDGE_SECONDS.observe(time.perf_counter() - started)
        JUDGE_REPLIES.labels(verdict.failure or "graded").inc()
        return verdict

    async def _ask(self, question: str, passage: Passage, end: float) -> Completion:
        # A fence nobody can guess: a passage can't close it and go on as an instruction.
        messages = self._prompts.judging(question, passage, fence=secrets.token_hex(8))
        while True:
            rung = self._rung
            try:
                return await self._chat.complete(
                    messages,
                    max_tokens=self._max_tokens,
                    response_format=self._ladder[rung],
                    timeout_s=max(0.0, end - self._clock()),
                )
            except RequestRefused as refused:
                if rung + 1 == len(self._ladder) or not any(word in refused.told.lower() for word in _FORMAT_WORDS):
                    raise
                self._rung = max(self._rung, rung + 1)


def _usage(verdicts: Sequence[_Verdict]) -> StageUsage:
    completions = [each.completion for each in verdicts if each.completion is not None]
    return StageUsage(
        stage=STAGE,
        calls=len(completions),
        prompt_tokens=sum(each.prompt_tokens for each in completions),
        completion_tokens=sum(each.completion_tokens for each in completions),
        estimated=any(each.estimated for each in completions),
    )


def _degraded(verdicts: Sequence[_Verdict]) -> tuple[str, ...]:
    marks = []
    for failure, told in _TOLD.items():
        failed = [each for each in verdicts if each.failure == failure]
        if failed:
            fault = next((each.setting_at_fault for each in failed if each.setting_at_fault), "")
            mark = f"{told}: {len(failed)} of {len(verdicts)} passages ungraded"
            marks.append(f"{mark} ({fault})" if fault else mark)
    return tuple(marks)
