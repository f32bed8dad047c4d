"""Kill what can be killed while jobs flow: every job ends exactly once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.runtime.keys import INBOXES, Keys
from shared.runtime.subscriber import ensure_group
from tests.chaos.fleet import SETTINGS, Fleet, Server, paused
from tests.support import bus
from tests.support.wait import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

JOBS = 300
ARRIVALS_PER_S = 15


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(tmp_path, port)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def keys() -> Keys:
    return Keys("chaos:")


@pytest.fixture
async def redis(server: Server, keys: Keys) -> AsyncIterator[Redis]:
    client = Redis.from_url(server.url)
    for inbox, group in INBOXES.items():
        await ensure_group(client, keys.inbox(inbox), group)
    yield client
    await client.aclose()


@pytest.fixture
def fleet(server: Server, keys: Keys) -> Any:
    fleet = Fleet(server.url, keys)
    yield fleet
    fleet.stop()


async def submit_all(redis: Redis, keys: Keys) -> list[str]:
    """Open-loop arrivals; a submission that Redis does not acknowledge is sent again, as a client would."""
    ids = [f"job-{number}" for number in range(JOBS)]
    for job_id in ids:
        while True:
            try:
                await bus.ask(redis, keys, "Why?", job_id=job_id, deadline_s=200)
                break
            except (RedisError, OSError):
                await asyncio.sleep(0.05)
        await asyncio.sleep(1 / ARRIVALS_PER_S)
    return ids


async def every_job_ends_once(redis: Redis, keys: Keys, disturb: Callable[[], Awaitable[None]]) -> None:
    """Run `disturb` again and again while jobs flow, then hold the promises."""
    flowing = asyncio.create_task(submit_all(redis, keys))
    while not flowing.done():
        await disturb()
    ids = await flowing
    await wait_until(lambda: _finished(redis, keys), within_s=120)

    entries: Any = await redis.xrange(keys.results)
    outcomes = [json.loads(fields[b"data"]) for _, fields in entries]
    assert Counter(outcome["job_id"] for outcome in outcomes) == Counter(ids)  # none lost, none twice
    assert Counter(outcome["status"] for outcome in outcomes) == {"answered": JOBS}
    for job_id in ids:
        assert len(await bus.terminals(redis, keys, job_id)) == 1
    await wait_until(lambda: _nothing_left(redis, keys), within_s=20)


async def _finished(redis: Redis, keys: Keys) -> bool:
    try:
        return await redis.xlen(keys.results) >= JOBS
    except (RedisError, OSError):  # it was just started again
        return False


async def _nothing_left(redis: Redis, keys: Keys) -> bool:
    return await bus.residue(redis, keys) == {}


async def test_a_random_worker_of_each_stage_killed_every_second(redis: Redis, keys: Keys, fleet: Fleet) -> None:
    rng = random.Random(1)

    async def disturb() -> None:
        await asyncio.sleep(1)
        for name in fleet.workers:
            fleet.kill_one(name, rng)

    await every_job_ends_once(redis, keys, disturb)


async def test_redis_killed_and_started_again(redis: Redis, keys: Keys, fleet: Fleet, server: Server) -> None:
    async def disturb() -> None:
        await asyncio.sleep(4)
        server.kill()
        await asyncio.sleep(0.5)
        server.start()

    await every_job_ends_once(redis, keys, disturb)
    assert fleet.exit_codes() == []  # nobody had to be started again


async def test_workers_paused_past_their_claim_time(redis: Redis, keys: Keys, fleet: Fleet) -> None:
    rng = random.Random(2)

    async def disturb() -> None:
        name = rng.choice(list(fleet.workers))
        with paused(fleet.pid(name, rng.randrange(2))):
            await asyncio.sleep(SETTINGS.claim_after_s * 2)
        await asyncio.sleep(0.3)

    await every_job_ends_once(redis, keys, disturb)


async def test_two_workers_on_one_message(redis: Redis, keys: Keys, fleet: Fleet) -> None:
    """Entries in hand are claimed by force for another worker that is alive: both work, one finish counts."""

    async def disturb() -> None:
        await asyncio.sleep(0.05)
        for stage in ("rewriter", "retriever", "grader", "generator"):
            stream = keys.inbox(stage)
            pending: Any = await redis.xpending_range(stream, stage, "-", "+", 10)
            for entry in pending:
                # Idle enough for the next claimer, though its owner is alive and working on it.
                owner, entry_id = entry["consumer"], entry["message_id"]
                await redis.xclaim(stream, stage, owner, 0, [entry_id], idle=60_000, justid=True)

    await every_job_ends_once(redis, keys, disturb)


async def test_a_rolling_stop_loses_nothing_and_exits_clean(redis: Redis, keys: Keys, fleet: Fleet) -> None:
    codes: list[int | None] = []

    async def disturb() -> None:
        await asyncio.sleep(1.5)
        name = random.Random(len(codes)).choice(list(fleet.workers))
        worker = fleet.workers[name][0]
        worker.terminate()
        await asyncio.to_thread(worker.join, 20)
        codes.append(worker.exitcode)
        fleet.workers[name][0] = fleet._start(name)

    await every_job_ends_once(redis, keys, disturb)
    assert set(codes) == {0}
