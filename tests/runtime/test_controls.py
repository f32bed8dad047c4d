"""Switches and provisional tokens, on a real server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from redis.asyncio import Redis

from shared.contracts import Retrieve, Rewrite
from shared.errors import PermanentError
from shared.runtime.controls import Controls, switch
from shared.runtime.keys import Keys
from shared.runtime.stage import Inbox, Stage
from shared.runtime.steps import Steps
from shared.runtime.telling import Telling
from tests.support import bus
from tests.support.wait import wait_until


async def test_a_switch_is_seen_set_and_taken_back(redis: Redis, keys: Keys) -> None:
    steps, controls = Steps(redis, keys, bus.FAST), Controls()
    assert (controls.generation, controls.web, controls.paused("grader"), controls.model("llm")) == (
        True,
        True,
        False,
        None,
    )
    for name, value in {"generation": "off", "web": "off", "pause:grader": "on", "model:llm": "m-2"}.items():
        await switch(steps, name, value)
    await controls.look(steps)
    assert (controls.generation, controls.web, controls.paused("grader"), controls.model("llm")) == (
        False,
        False,
        True,
        "m-2",
    )
    assert not controls.paused("rewriter")
    for name in controls.all:
        await switch(steps, name, "default")
    await controls.look(steps)
    assert controls.all == {}


@pytest.mark.parametrize(("name", "value"), [("generator", "off"), ("generation", "on"), ("pause:nobody", "on")])
async def test_what_is_no_switch_is_refused_with_what_there_is(redis: Redis, keys: Keys, name: str, value: str) -> None:
    with pytest.raises(PermanentError, match=r"no switch|can be"):
        await switch(Steps(redis, keys, bus.FAST), name, value)
    assert await redis.exists(keys.control) == 0


async def test_a_paused_stage_leaves_its_messages_until_it_goes_on(redis: Redis, redis_url: str, keys: Keys) -> None:
    steps = Steps(redis, keys, bus.FAST)
    await switch(steps, "pause:rewriter", "on")
    seen: list[str] = []

    async def rewrite(msg: Rewrite) -> Retrieve:
        seen.append(msg.header.job_id)
        return await bus.rewrite(msg)

    stages = [bus.gateway(), Stage("rewriter", [Inbox.of(rewrite, max_workers=2)])]
    async with bus.running(stages, redis_url, keys) as (_, worker):
        await bus.ask(redis, keys, job_id="kept")
        await wait_until(lambda: redis.xlen(keys.inbox("rewriter")))
        assert worker.controls.paused("rewriter")
        looked = worker.subscribers[0]._looked_at
        await wait_until(lambda: worker.subscribers[0]._looked_at > looked)
        pending: Any = await redis.xpending(keys.inbox("rewriter"), "rewriter")
        assert (pending["pending"], seen, worker.pulse.complaint()) == (0, [], "")
        await switch(steps, "pause:rewriter", "default")
        await wait_until(lambda: seen == ["kept"])


# --- provisional tokens ----------------------------------------------------------------------------------------------


async def tokens(redis: Redis, keys: Keys, job_id: str = "j") -> list[dict[str, Any]]:
    entries: Any = await redis.xrange(keys.events(job_id))
    return [json.loads(fields[b"data"]) for _, fields in entries if fields[b"type"] == b"token"]


async def test_text_is_told_as_it_grows_and_begins_anew_where_it_must(redis: Redis, keys: Keys) -> None:
    await redis.hset(keys.job("j"), "status", "running")
    telling = Telling(Steps(redis, keys, bus.FAST))
    async with telling.about("j") as tell:
        tell("Tents")
        await wait_until(lambda: tokens(redis, keys))
        tell("Tents may")
        tell("Tents may be returned.")
        await wait_until(lambda: _count(redis, keys, 2))
        tell("No.")
    found = await tokens(redis, keys)
    assert [each["text"] for each in found] == ["Tents", " may be returned.", "No."]
    assert [each.get("restart", False) for each in found] == [False, False, True]
    assert all(each["provisional"] for each in found)
    assert 0 < await redis.ttl(keys.events("j")) <= 600


async def _count(redis: Redis, keys: Keys, wanted: int) -> bool:
    return len(await tokens(redis, keys)) >= wanted


async def test_nothing_is_told_of_a_job_that_has_ended(redis: Redis, keys: Keys) -> None:
    for status in ("answered", "cancelled"):
        await redis.hset(keys.job("j"), "status", status)
        with pytest.raises(asyncio.CancelledError):
            await _talk(Telling(Steps(redis, keys, bus.FAST)))
    assert await redis.exists(keys.events("j")) == 0


async def test_a_job_that_nobody_knows_is_left_to_the_step_that_buries_its_command(redis: Redis, keys: Keys) -> None:
    async with Telling(Steps(redis, keys, bus.FAST)).about("j") as tell:
        tell("To nobody.")
    assert await redis.exists(keys.events("j")) == 0


async def _talk(telling: Telling) -> None:
    """As a model that would go on for ever."""

    async def talk() -> None:
        async with telling.about("j") as tell:
            tell("Too late.")
            await asyncio.Event().wait()

    await asyncio.create_task(talk())


async def test_what_was_said_last_is_told_although_the_block_ends(redis: Redis, keys: Keys) -> None:
    await redis.hset(keys.job("j"), "status", "running")
    async with Telling(Steps(redis, keys, bus.FAST)).about("j") as tell:
        tell("Yes.")
    assert [each["text"] for each in await tokens(redis, keys)] == ["Yes."]
    async with Telling(Steps(redis, keys, bus.FAST)).about("j"):
        pass
    assert len(await tokens(redis, keys)) == 1
