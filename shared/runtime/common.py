"""What the workers have in common: Redis and the names of its keys, and the switches that operators set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from redis.asyncio import Redis

from shared.runtime.connection import connect
from shared.runtime.controls import Controls
from shared.runtime.embedded_redis import redis_url
from shared.runtime.keys import Keys
from shared.runtime.steps import Steps
from shared.settings import HomeSettings, RedisSettings, RuntimeSettings


@dataclass(frozen=True, slots=True)
class Common:
    """For handlers and clients that share something over all workers: a limit, a cache, a switch."""

    redis: Redis
    keys: Keys
    settings: RuntimeSettings = field(default_factory=RuntimeSettings)
    controls: Controls = field(default_factory=Controls)

    @property
    def steps(self) -> Steps:
        return Steps(self.redis, self.keys, self.settings)


@asynccontextmanager
async def open_common() -> AsyncIterator[Common]:
    """The Redis that the settings name. It connects when it is first used."""
    settings = RedisSettings()
    redis = connect(redis_url(settings, HomeSettings()))
    try:
        yield Common(redis, Keys(settings.topic_prefix), RuntimeSettings())
    finally:
        await redis.aclose()
