"""Grades remembered in Redis: the same passage is not judged twice for the same question.

A key is a digest of question, passage text, judge model and prompt version. Thresholds are not in it, they are applied
to the score afterwards; nor is who asked: whoever can name the passage's text has read it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import structlog
from prometheus_client import Counter
from pydantic import ValidationError
from redis.exceptions import RedisError

from shared.clients.judge.protocol import STAGE, Enough, Grading, Judge
from shared.contracts import Passage, PassageGrade, StageUsage
from shared.runtime.common import Common

JUDGE_CACHE = Counter(
    "cairn_judge_cache", "Grades asked for: remembered, being asked by another job, or neither.", ("outcome",)
)

_WAIT_SHARE: Final = 0.25
"""Of the time left to the deadline, for a grade that another job is asking for."""

_log = structlog.get_logger("cairn")

Flight = asyncio.Future[PassageGrade | None]
"""A grade being asked for: None where it could not be had."""


class CachedJudge:
    """A judge that remembers. A pair that another job of this worker has in flight is waited for, not asked again."""

    def __init__(self, judge: Judge, common: Common, *, ttl_s: float, clock: Callable[[], float] = time.time) -> None:
        self._judge = judge
        self._common = common
        self._ttl_ms = int(ttl_s * 1000)
        self._clock = clock
        self._flights: dict[str, Flight] = {}

    @property
    def name(self) -> str:
        return self._judge.name

    @property
    def version(self) -> str:
        return self._judge.version

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
        keys = [self._key(question, language, passage) for passage in passages]
        by_key = dict(zip(keys, passages, strict=True))
        grades = await self._recall(list(by_key))
        flown = {key: self._flights[key] for key in by_key if key not in grades and key in self._flights}
        missing = {key: passage for key, passage in by_key.items() if key not in grades and key not in flown}
        for outcome, count in (("hit", len(grades)), ("shared", len(flown)), ("miss", len(missing))):
            JUDGE_CACHE.labels(outcome).inc(count)

        async def ask(wanted: Mapping[str, Passage], calls: int | None) -> Grading:
            before = [*grades.values()]
            grading = await self._judge.grade_all(
                question,
                language,
                [*wanted.values()],
                deadline=deadline,
                max_calls=calls,
                enough=None if enough is None else lambda found: enough([*before, *found]),
            )
            grades.update(zip(wanted, grading.grades, strict=True))
            return grading

        with self._in_flight(missing, grades):
            gradings = [await ask(missing, max_calls)]
        if flown:
            await asyncio.wait(flown.values(), timeout=max(0.0, deadline - self._clock()) * _WAIT_SHARE)
            grades |= {key: grade for key, each in flown.items() if each.done() and (grade := each.result())}
            left = None if max_calls is None else max(0, max_calls - gradings[0].usage.calls)
            gradings.append(await ask({key: by_key[key] for key in flown if key not in grades}, left))
        await self._remember({key: grades[key] for key in (*missing, *flown) if grades[key].score is not None})
        return Grading(
            tuple(grades[key] for key in keys),
            StageUsage.total(STAGE, (each.usage for each in gradings)),
            tuple(dict.fromkeys(mark for grading in gradings for mark in grading.degraded)),
        )

    async def aclose(self) -> None:
        await self._judge.aclose()

    @contextmanager
    def _in_flight(self, missing: Iterable[str], grades: Mapping[str, PassageGrade]) -> Iterator[None]:
        """Lets other jobs wait for these grades. They get None for what could not be had, and ask for themselves."""
        flights = {key: asyncio.get_running_loop().create_future() for key in missing}
        self._flights |= flights
        try:
            yield
        finally:
            for key, flight in flights.items():
                del self._flights[key]
                grade = grades.get(key)
                flight.set_result(grade if grade is not None and grade.score is not None else None)

    async def _recall(self, keys: Sequence[str]) -> dict[str, PassageGrade]:
        if not keys:
            return {}
        try:
            found = await self._common.redis.mget(keys)
        except (RedisError, OSError) as away:
            _log.warning("can't recall grades, asking for them", error=str(away))
            return {}
        return {key: grade for key, text in zip(keys, found, strict=True) if text and (grade := _read(text))}

    async def _remember(self, grades: Mapping[str, PassageGrade]) -> None:
        if not grades:
            return
        try:
            async with self._common.redis.pipeline(transaction=False) as pipeline:
                for key, grade in grades.items():
                    pipeline.set(key, grade.model_dump_json(exclude_defaults=True), px=self._ttl_ms)
                await pipeline.execute()
        except (RedisError, OSError) as away:
            _log.warning("can't remember grades", error=str(away))

    def _key(self, question: str, language: str, passage: Passage) -> str:
        parts = (self.name, self.version, language, question, passage.title, passage.section, passage.text)
        return self._common.keys.grade(hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:40])


def _read(text: bytes | str) -> PassageGrade | None:
    """A remembered grade; None for one that another version of Cairn wrote and this one can't read."""
    try:
        return PassageGrade.model_validate_json(text)
    except ValidationError:
        return None
