"""The runtime's connection to Redis."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError


class RuntimeRedis(Redis):
    """redis-py's client, for which a transport that closed under its hands is a lost connection.

    uvloop raises a bare RuntimeError for a write to such a transport, which redis-py lets through.
    """

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise lost_connection(error) from error


def lost_connection(error: RuntimeError) -> Exception:
    """The connection error that this RuntimeError stands for, or itself if it is another one."""
    return RedisConnectionError(str(error)) if "closed" in str(error) else error


def connect(url: str) -> Redis:
    """One quick retry replaces a stale connection; waiting for Redis is the runtime's own business."""
    return RuntimeRedis.from_url(
        url, socket_keepalive=True, health_check_interval=10, retry=Retry(NoBackoff(), retries=1)
    )
