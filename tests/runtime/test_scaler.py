"""The scaler's loop on a real Redis; the containers are counted here (tests/deploy has real ones)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY
from redis.asyncio import Redis
from structlog.testing import capture_logs

from shared.contracts import Generate, Grade
from shared.errors import TransientError
from shared.runtime.keys import Keys
from shared.runtime.subscriber import ensure_group
from shared.runtime.worker import Worker
from shared.scaler.decision import Bounds, Signals
from shared.scaler.scaler import Scaler
from shared.scaler.settings import ScalerSettings
from shared.scaler.signals import read_signals
from tests.support.bus import FAST, ask, grade, outcome, pipeline, residue, running, serve, stage, terminals
from tests.support.wait import wait_until


class Counted:
    """An engine's stand-in: a number."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.away = False

    def count(self, service: str) -> int:
        if self.away:
            raise TransientError("Docker: gone")
        return self.replicas

    def scale(self, service: str, replicas: int) -> int:
        before, self.replicas = self.replicas, replicas
        return before


def scaler(redis: Redis, keys: Keys, engine: Counted, **settings: Any) -> Scaler:
    bounds = {"grader": Bounds(max=4)}
    return Scaler(ScalerSettings(services=bounds, every_s=0.01, **settings), redis, keys, engine)  # type: ignore[arg-type]


async def fill(redis: Redis, keys: Keys, name: str, *, group: str, waiting: int, in_hand: int = 0) -> None:
    client: Any = redis
    stream = keys.inbox(name)
    await ensure_group(redis, stream, group)
    for _ in range(in_hand + waiting):
        await client.xadd(stream, {"data": "{}"})
    if in_hand:
        await client.xreadgroup(group, "me", {stream: ">"}, count=in_hand)


async def test_what_waits_is_told_from_what_is_in_hand(redis: Redis, keys: Keys) -> None:
    await fill(redis, keys, "grader", group="grader", waiting=0, in_hand=3)
    assert await read_signals(redis, keys, "grader") == Signals(0, 0.0, 3)
    await fill(redis, keys, "grader", group="grader", waiting=5)
    seen = await read_signals(redis, keys, "grader")
    assert (seen.waiting, seen.in_hand) == (5, 3)
    assert 0 <= seen.oldest_s < 5


async def test_the_age_is_that_of_the_oldest_one_waiting(redis: Redis, keys: Keys) -> None:
    client: Any = redis
    stream, now_ms = keys.inbox("grader"), int(time.time() * 1000)
    await ensure_group(redis, stream, "grader")
    for age_s in (300, 20, 10):
        await client.xadd(stream, {"data": "{}"}, id=f"{now_ms - age_s * 1000}-0")
    await client.xreadgroup("grader", "me", {stream: ">"}, count=1)  # the oldest is in hand
    assert (await read_signals(redis, keys, "grader")).oldest_s == pytest.approx(20, abs=5)


async def test_all_inboxes_of_a_service_count_and_missing_ones_are_empty(redis: Redis, keys: Keys) -> None:
    assert await read_signals(redis, keys, "retriever") == Signals(0, 0.0, 0)
    await fill(redis, keys, "ingest", group="retriever", waiting=4, in_hand=1)
    await fill(redis, keys, "retriever", group="retriever", waiting=2)
    seen = await read_signals(redis, keys, "retriever")
    assert (seen.waiting, seen.in_hand) == (6, 1)


@pytest.fixture
def told_infos() -> Iterator[None]:
    """Lines of level info are logged, too."""
    wrapper = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    yield
    structlog.configure(wrapper_class=wrapper)


@pytest.mark.usefixtures("told_infos")
async def test_a_backlog_calls_for_more_and_is_told(redis: Redis, keys: Keys) -> None:
    await fill(redis, keys, "grader", group="grader", waiting=20, in_hand=8)
    engine = Counted(1)
    with capture_logs() as logs:
        await scaler(redis, keys, engine).look("grader")
    assert engine.replicas == 3
    (line,) = [each for each in logs if each["event"] == "scaling"]
    facts = {"replicas": 1, "wanted": 3, "reason": "backlog", "waiting": 20, "in_hand": 8, "dry_run": False}
    assert facts.items() <= line.items()
    assert REGISTRY.get_sample_value("cairn_scaler_wanted", {"service": "grader"}) == 3
    assert REGISTRY.get_sample_value("cairn_scaler_replicas", {"service": "grader"}) == 3


async def test_a_dry_run_tells_and_changes_nothing(redis: Redis, keys: Keys) -> None:
    await fill(redis, keys, "grader", group="grader", waiting=100)
    engine = Counted(1)
    labels = {"service": "grader", "reason": "backlog"}
    before = REGISTRY.get_sample_value("cairn_scaler_decisions_total", labels) or 0
    await scaler(redis, keys, engine, dry_run=True).look("grader")
    assert engine.replicas == 1
    assert REGISTRY.get_sample_value("cairn_scaler_decisions_total", labels) == before + 1
    assert REGISTRY.get_sample_value("cairn_scaler_wanted", {"service": "grader"}) == 4


async def test_an_engine_that_is_away_ends_nothing(redis: Redis, keys: Keys) -> None:
    await fill(redis, keys, "grader", group="grader", waiting=100)
    engine = Counted(1)
    engine.away = True
    running = asyncio.create_task(scaler(redis, keys, engine).run())
    try:
        with capture_logs() as logs:
            await wait_until(lambda: [each for each in logs if each["event"] == "can't scale"])
            engine.away = False
            await wait_until(lambda: engine.replicas == 4)
    finally:
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()


class Workers:
    """An engine whose replicas are workers in this process; those that go stop as on SIGTERM."""

    def __init__(self, start: Callable[[], Worker]) -> None:
        self.start = start
        self.loop = asyncio.get_running_loop()
        self.serving: list[tuple[Worker, asyncio.Task[None]]] = []
        self.counts: list[int] = []

    async def resize(self, replicas: int) -> None:
        while len(self.serving) < replicas:
            worker = self.start()
            self.serving.append((worker, asyncio.create_task(serve(worker))))
        leaving = self.serving[replicas:]
        for worker, _ in leaving:
            worker.app.exit()
        await asyncio.gather(*(task for _, task in leaving))
        del self.serving[replicas:]
        self.counts.append(replicas)

    def count(self, service: str) -> int:
        return len(self.serving)

    def scale(self, service: str, replicas: int) -> int:
        asyncio.run_coroutine_threadsafe(self.resize(replicas), self.loop).result(timeout=30)
        return replicas


async def slow_grade(msg: Grade) -> Generate:
    """Waits for a judge, as graders do."""
    await asyncio.sleep(0.2)
    return await grade(msg)


async def test_no_job_is_lost_while_graders_come_and_go(redis: Redis, keys: Keys, redis_url: str) -> None:
    """One grader does 40 jobs a second; 100 a second arrive."""
    others = [each for each in pipeline() if each.name != "grader"]
    graders = Workers(lambda: Worker(stage(slow_grade), redis_url, keys, FAST))
    bounds = {"grader": Bounds(max=4)}
    settings = ScalerSettings(services=bounds, up_after_s=0.5, down_after_s=0.5, every_s=0.05)
    async with running(others, redis_url, keys):
        await graders.resize(1)
        scaling = asyncio.create_task(Scaler(settings, redis, keys, graders).run())  # type: ignore[arg-type]
        jobs = []
        try:
            for _ in range(300):
                jobs.append(await ask(redis, keys))
                await asyncio.sleep(0.01)  # they come whether or not the last one is done
            await wait_until(lambda: graders.counts[-1] == 1 and len(graders.counts) > 2, within_s=60)
            ended = [await wait_until(lambda job=job: outcome(redis, keys, job), within_s=60) for job in jobs]  # type: ignore[misc]
        finally:
            scaling.cancel()
            await asyncio.wait([scaling])
            await graders.resize(0)
    assert {each.status for each in ended} == {"answered"}
    assert [len(await terminals(redis, keys, job)) for job in jobs] == [1] * len(jobs)
    assert await residue(redis, keys) == {}
    assert max(graders.counts) >= 3
    assert max(graders.counts) <= 4
