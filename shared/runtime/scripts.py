"""Lua scripts by name, sent together: calls made while one is on the wire go out in one pipeline (bench/bus.py)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from shared.runtime.connection import lost_connection

Argument = str | bytes | int | float


class Script:
    """The source of one step, with the common prelude in front, and its digest for EVALSHA."""

    def __init__(self, name: str) -> None:
        folder = resources.files("shared.runtime") / "lua"
        prelude, body = ((folder / f"{part}.lua").read_text("utf-8") for part in ("_common", name))
        self.source = f"{prelude}\n{body}"
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


_NAMES = "admit advance finish reject end settle bury claim renew hand_back leave forget readmit tell"
SCRIPTS = {name: Script(name) for name in _NAMES.split()}


@dataclass(slots=True)
class _Call:
    script: Script
    keys: Sequence[str]
    arguments: Sequence[Argument]
    reply: asyncio.Future[Any]


class Scripts:
    """Runs the scripts on one Redis connection pool. Raises redis-py's errors."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self._waiting: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None

    async def call(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        # Encoded here, so that text which can't be is its caller's problem and nobody else's in the pipeline.
        encoded = [value.encode() if isinstance(value, str) else value for value in arguments]
        call = _Call(SCRIPTS[name], keys, encoded, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_waiting())
        return await call.reply

    async def _send_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                replies = await self._send(batch)
            except (RedisError, OSError, ValueError, TypeError) as error:
                replies = [error] * len(batch)
            except RuntimeError as error:
                replies = [lost_connection(error)] * len(batch)
            except asyncio.CancelledError:
                for call in batch:
                    call.reply.cancel()
                raise
            for call, reply in zip(batch, replies, strict=True):
                if call.reply.done():  # its caller was cancelled
                    continue
                if isinstance(reply, BaseException):
                    call.reply.set_exception(reply)
                else:
                    call.reply.set_result(reply)

    async def _send(self, batch: list[_Call]) -> list[Any]:
        async with self.redis.pipeline(transaction=False) as pipeline:
            for call in batch:
                pipeline.evalsha(call.script.sha, len(call.keys), *call.keys, *call.arguments)
            replies = await pipeline.execute(raise_on_error=False)
        missing = {call.script.sha: call.script for call, reply in _pairs(batch, replies) if _unknown(reply)}
        if not missing:
            return replies
        # A restarted server, or SCRIPT FLUSH. A refused call changed nothing, so it goes out again as it was.
        for script in missing.values():
            await self.redis.script_load(script.source)
        again = [call for call, reply in _pairs(batch, replies) if _unknown(reply)]
        answers = iter(await self._send(again))
        return [next(answers) if _unknown(reply) else reply for reply in replies]


def _pairs(batch: list[_Call], replies: list[Any]) -> zip[tuple[_Call, Any]]:
    return zip(batch, replies, strict=True)


def _unknown(reply: object) -> bool:
    return isinstance(reply, NoScriptError)
