"""A limit on calls that all workers share, kept in Redis: so many requests and tokens a minute.

Providers count a minute over all of a customer's processes; a bound per worker would have to be changed with every
replica.
"""

from __future__ import annotations

from importlib import resources
from typing import Protocol

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

_log = structlog.get_logger("cairn")


class CallLimit(Protocol):
    """Counts calls and tokens."""

    async def take(self, tokens: int) -> float:
        """Take one call of so many tokens: 0 if it may be made now, else the seconds to wait before asking again."""
        ...


class SharedLimit:
    """At most `requests` calls and `tokens` tokens in any minute, over everybody who uses these keys; 0 is no limit.

    While Redis does not answer nothing is limited: without Redis no job comes in either.
    """

    def __init__(self, redis: Redis, key: str, *, requests: int = 0, tokens: int = 0) -> None:
        """`key` begins the names of two keys. On Redis Cluster it must have a hash tag."""
        self._take = redis.register_script(resources.files(__package__).joinpath("take.lua").read_text("utf-8"))
        self._keys = (f"{key}:requests", f"{key}:tokens")
        self._limits = (requests, tokens)

    async def take(self, tokens: int) -> float:
        try:
            return int(await self._take(self._keys, (*self._limits, tokens))) / 1000
        except (RedisError, OSError) as away:
            _log.warning("can't ask for the shared limit: none is kept", error=str(away))
            return 0.0
