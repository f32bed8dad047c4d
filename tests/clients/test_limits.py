"""The limit that workers share, on a real server."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from shared.clients.chat import open_chat
from shared.clients.limits import SharedLimit
from shared.errors import ModelUnavailable
from shared.runtime.common import Common
from shared.runtime.keys import Keys
from shared.settings import LlmSettings
from tests.support.mock_openai import MockOpenAI

ASK = [{"role": "user", "content": "x" * 400}]


async def test_a_tenth_of_a_minute_may_be_taken_at_once_then_the_pace_is_kept(redis: Redis, keys: Keys) -> None:
    limits = [SharedLimit(redis, keys.limit("m"), requests=600) for _ in range(4)]  # four workers
    waits = [await limits[n % 4].take(0) for n in range(80)]
    taken = [wait for wait in waits if wait == 0]
    assert 54 <= len(taken) <= 60  # 6 s worth of 600 / 66 s, and what the loop itself took
    assert all(0 < wait < 0.2 for wait in waits if wait)


async def test_never_more_than_the_limit_in_a_minute(redis: Redis, keys: Keys) -> None:
    """By the moment at which the key says everything is paid off: burst and pace together make one minute's worth."""
    limit = SharedLimit(redis, keys.limit("m"), requests=60)
    burst = 0
    while await limit.take(0) == 0:
        burst += 1
    a_call_every_ms = (await redis.pttl(f"{keys.limit('m')}:requests")) / burst
    assert burst + 60_000 / a_call_every_ms <= 60.5


async def test_tokens_count_apart_and_a_refused_call_takes_nothing(redis: Redis, keys: Keys) -> None:
    limit = SharedLimit(redis, keys.limit("m"), requests=600, tokens=6_000)
    assert await limit.take(500) == 0
    left_ms = await redis.pttl(f"{keys.limit('m')}:requests")
    assert await limit.take(500) > 0
    assert await redis.pttl(f"{keys.limit('m')}:requests") <= left_ms


async def test_a_call_larger_than_the_burst_is_made_when_nothing_else_is_owed(redis: Redis, keys: Keys) -> None:
    limit = SharedLimit(redis, keys.limit("m"), tokens=1_000)
    assert await limit.take(5_000) == 0
    assert await limit.take(1) > 60


async def test_chats_of_two_workers_keep_one_limit_and_say_which_setting_it_is(redis: Redis, keys: Keys) -> None:
    async with MockOpenAI() as mock:
        settings = LlmSettings(base_url=mock.base_url, requests_per_minute=20, _env_file=None)
        workers = [open_chat(settings, attempts=1, common=Common(redis, keys)) for _ in range(2)]
        calls = [
            chat.complete(ASK, max_tokens=8, timeout_s=1) for chat in workers for _ in range(5) if chat is not None
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in results if isinstance(each, ModelUnavailable)]
        assert len(mock.requests) == len(results) - len(refused) <= 2
        assert "CAIRN_LLM_REQUESTS_PER_MINUTE" in str(refused[0])
        assert (refused[0].retry_after_s or 0) > 1
        for chat in workers:
            assert chat is not None
            await chat.aclose()


async def test_without_redis_nothing_is_limited(keys: Keys) -> None:
    away = Redis.from_url("redis://127.0.0.1:1/0")
    assert await SharedLimit(away, keys.limit("m"), requests=1).take(0) == 0
    await away.aclose()


@pytest.mark.parametrize("limit", [0, 1])
async def test_no_limit_no_key(redis: Redis, keys: Keys, limit: int) -> None:
    assert await SharedLimit(redis, keys.limit("m"), tokens=limit).take(1) == 0
    assert await redis.exists(f"{keys.limit('m')}:requests") == 0
    assert await redis.exists(f"{keys.limit('m')}:tokens") == limit
