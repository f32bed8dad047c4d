"""Generation that switches itself off where too few answers hold, on a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from services.generator.handler import generate
from services.generator.settings import AnsweringPolicy
from services.generator.watch import Groundedness
from shared.contracts import Answered
from shared.runtime.common import Common
from shared.runtime.controls import switch
from shared.runtime.keys import Keys
from tests.support import bus
from tests.unit.test_generator import FakeChat, command, evidence


def policy(*, watched: int = 4, share: float = 0.5) -> AnsweringPolicy:
    return AnsweringPolicy(_env_file=None, self_check=False, watched_answers=watched, grounded_share=share)


def watching(common: Common, **bounds: Any) -> Groundedness:
    return Groundedness(common, policy(**bounds))


@pytest.fixture
def common(redis: Redis, keys: Keys) -> Common:
    return Common(redis, keys, bus.FAST)


async def generates(common: Common) -> bool:
    await common.controls.look(common.steps)
    return common.controls.generation


async def test_too_few_that_hold_switch_generation_off_until_a_hand_switches_it_on(common: Common) -> None:
    watch = watching(common)
    for held in (True, False, False):
        await watch.note(held=held)
    assert await generates(common)  # of three nothing can be said yet
    await watch.note(held=False)
    assert not await generates(common)
    assert common.controls.all == {"generation": "off: groundedness 0.25"}
    assert REGISTRY.get_sample_value("cairn_groundedness") == 0.25
    for _ in range(4):
        await watch.note(held=True)
    assert not await generates(common)  # not by itself
    await switch(common.steps, "generation", "default")
    assert await generates(common)
    await watch.note(held=False)
    assert await generates(common)  # what switched it off is forgotten


async def test_only_the_latest_count_and_zero_switches_nothing(common: Common) -> None:
    never, watch = watching(common, share=0.0), watching(common)
    for held in (False, False, False, False, True, True):
        await never.note(held=held)
    assert await generates(common)
    await watch.note(held=True)
    assert await generates(common)
    length: Any = await common.redis.llen(common.keys.groundedness)
    assert length == 4
    assert await common.redis.ttl(common.keys.groundedness) > 0


async def test_workers_count_together_and_an_operators_switch_is_kept(common: Common) -> None:
    await asyncio.gather(*(watching(common, watched=40).note(held=False) for _ in range(39)))
    assert await generates(common)
    await switch(common.steps, "generation", "off")
    await watching(common, watched=40).note(held=False)
    assert await common.redis.hget(common.keys.control, "generation") == b"off"


@pytest.mark.parametrize(
    ("replies", "share"), [(["45 days [1]."], 1.0), (["Tents: 99 days [1]."] * 2, 0.0), (["NO_ANSWER"], None)]
)
async def test_answers_are_noted_once_each(common: Common, replies: list[str], share: float | None) -> None:
    outcome = await generate(
        command(evidence()), chat=FakeChat(*replies), embedder=None, policy=policy(), groundedness=watching(common),
        now=lambda: 1002.0,
    )  # fmt: skip
    assert isinstance(outcome, Answered)
    noted: Any = await common.redis.lrange(common.keys.groundedness, 0, -1)
    assert [float(each) for each in noted] == ([] if share is None else [share])


async def test_an_answer_is_given_although_it_can_not_be_noted(keys: Keys) -> None:
    gone = Common(Redis(port=1, socket_connect_timeout=0.2), keys, bus.FAST)
    outcome = await generate(
        command(evidence()), chat=FakeChat("45 days [1]."), embedder=None, policy=policy(),
        groundedness=watching(gone), now=lambda: 1002.0,
    )  # fmt: skip
    assert isinstance(outcome, Answered)
    assert outcome.status == "answered"
    await gone.redis.aclose()
