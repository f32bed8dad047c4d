"""A chat model as judge: one call a passage, all in parallel, under the client's bound on calls in flight."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from prometheus_client import Counter, Histogram

from shared.clients.chat import ChatModel, Completion, ReplySchema, spent
from shared.clients.judge.protocol import STAGE, Enough, Grading, JudgePrompts
from shared.clients.judge.replies import read_grade, read_grades, ungraded
from shared.clients.status import RequestRefused
from shared.contracts import Passage, PassageGrade
from shared.errors import CairnError, InvalidModelReply, Misconfigured

JUDGE_SECONDS = Histogram(
    "cairn_judge_seconds",
    "One judge call, queueing and retries included.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30),
)
JUDGE_REPLIES = Counter("cairn_judge_replies", "Passages sent to the judge, by what came back.", ("outcome",))

Failure = Literal["unavailable", "unreadable", "unaffordable"]

_TIME_SHARE: Final = 0.5
"""Of the time left to the deadline; the rest is for the web search and the answer."""
_READINGS: Final = 3
"""Replies asked for, while they can't be read and still matter."""
_ASKED_AGAIN: Final = 0.5
"""Temperature after an unreadable reply: at 0 most models would say the same again."""
_TOLD: Final[Mapping[Failure, str]] = {
    "unavailable": "judge unavailable",
    "unreadable": "judge replies unreadable",
    "unaffordable": "judge calls spent",
}
_SPENT: Final = ungraded("the job's budget of model calls is spent")


@dataclass(slots=True)
class _Work:
    """The passages of one job, and what is known of them so far."""

    question: str
    passages: Sequence[Passage]
    end: float
    """Moment, in seconds since the epoch, until which replies are waited for."""
    calls_left: float
    enough: Enough | None
    grades: list[PassageGrade]
    failures: dict[int, Failure] = field(default_factory=dict)
    completions: list[Completion] = field(default_factory=list)
    setting_at_fault: str = ""

    @property
    def open(self) -> bool:
        """Whether another grade may still change the decision."""
        return self.enough is None or not self.enough(self.grades)

    def may_call(self) -> bool:
        """Whether a call is left; it is spent."""
        self.calls_left -= 1
        return self.calls_left >= 0

    def fail(self, places: Sequence[int], failure: Failure, grade: PassageGrade) -> None:
        for place in places:
            self.failures[place] = failure
            self.grades[place] = grade
        JUDGE_REPLIES.labels(failure).inc(len(places))

    def take(self, graded: Mapping[int, PassageGrade]) -> None:
        for place, grade in graded.items():
            self.grades[place] = grade
            self.failures.pop(place, None)
        JUDGE_REPLIES.labels("graded").inc(len(graded))


class HttpJudge:
    """Asks a chat model for JSON. A reply that can't be read is asked for again, where it still matters."""

    def __init__(
        self,
        chat: ChatModel,
        prompts: JudgePrompts,
        *,
        max_tokens: int,
        batch: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`batch` passages are sent in one call, `max_tokens` bounds the reply to one passage."""
        self._chat = chat
        self._prompts = prompts
        self._max_tokens = max_tokens
        self._batch = batch
        self._clock = clock
        self._one = ReplySchema("grade", prompts.REPLY_SCHEMA)
        self._many = ReplySchema("grades", prompts.BATCH_SCHEMA)

    @property
    def name(self) -> str:
        return self._chat.name

    @property
    def version(self) -> str:
        return self._prompts.VERSION if self._batch == 1 else f"{self._prompts.VERSION}-by-{self._batch}"

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
        end = self._clock() + max(0.0, deadline - self._clock()) * _TIME_SHARE
        calls = float("inf") if max_calls is None else max_calls
        work = _Work(question, passages, end, calls, enough, [_SPENT] * len(passages))
        places = range(len(passages))
        async with asyncio.TaskGroup() as tasks:
            for start in range(0, len(passages), self._batch):
                tasks.create_task(self._judge(work, places[start : start + self._batch]))
        return Grading(tuple(work.grades), spent(STAGE, *work.completions), _degraded(work))

    async def aclose(self) -> None:
        await self._chat.aclose()

    async def _judge(self, work: _Work, places: Sequence[int]) -> None:
        """Grades for the passages in these places, in one call, or two where the first reply could not be read."""
        if not work.may_call():
            work.fail(places, "unaffordable", _SPENT)
            return
        unread = await self._call(work, places, temperature=0.0)
        for _ in range(_READINGS - 1):
            if unread and work.open and work.may_call():
                unread = await self._call(work, unread, temperature=_ASKED_AGAIN)

    async def _call(self, work: _Work, places: Sequence[int], *, temperature: float) -> list[int]:
        """Makes one call; answers the places whose grade its reply did not say."""
        started = time.perf_counter()
        # A fence nobody can guess: a passage can't close it and go on as an instruction.
        fence = secrets.token_hex(8)
        passages = [work.passages[place] for place in places]
        alone = len(passages) == 1
        try:
            completion = await self._chat.complete(
                self._prompts.judging(work.question, passages[0], fence=fence)
                if alone
                else self._prompts.judging_many(work.question, passages, fence=fence),
                max_tokens=self._max_tokens * len(passages),
                temperature=temperature,
                schema=self._one if alone else self._many,
                timeout_s=max(0.0, work.end - self._clock()),
                needed=lambda: work.open,
            )
        except RequestRefused as error:
            work.fail(places, "unavailable", ungraded(f"judge unavailable: {error}"))
            return []
        except InvalidModelReply as error:  # not even a completion
            work.fail(places, "unreadable", ungraded(f"judge reply unreadable: {error}"))
            return list(places)
        except CairnError as error:
            if isinstance(error, Misconfigured):
                work.setting_at_fault = str(error)
            work.fail(places, "unavailable", ungraded(f"judge unavailable: {error}"))
            return []
        finally:
            JUDGE_SECONDS.observe(time.perf_counter() - started)
        work.completions.append(completion)
        said = [read_grade(completion.text)] if alone else read_grades(completion.text, len(passages))
        grades = dict(zip(places, said, strict=True))
        work.take({place: grade for place, grade in grades.items() if grade.score is not None})
        unread = [place for place, grade in grades.items() if grade.score is None]
        for place in unread:
            work.fail([place], "unreadable", grades[place])
        return unread


def _degraded(work: _Work) -> tuple[str, ...]:
    marks = []
    for failure, told in _TOLD.items():
        if failed := sum(each == failure for each in work.failures.values()):
            mark = f"{told}: {failed} of {len(work.passages)} passages ungraded"
            blamed = failure == "unavailable" and work.setting_at_fault
            marks.append(f"{mark} ({work.setting_at_fault})" if blamed else mark)
    return tuple(marks)
