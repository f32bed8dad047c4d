"""Cairn as it runs: one `cairn worker grader` on the embedded Valkey; a question is admitted and waited for."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from bench.peers.asked import AT_ONCE, CALLS_AT_ONCE, AskedQuestion, Side
from bench.peers.grading_cairn import command
from bench.scaling import KEYS, admit, grader, ready, workers_up
from shared.runtime.embedded_redis import start_server, stop_server


@asynccontextmanager
async def opened(base_url: str) -> AsyncIterator[Side]:
    with tempfile.TemporaryDirectory() as directory:
        server, _ = start_server(Path(directory))
        redis: Redis = Redis.from_url(server.url)
        await ready(redis)
        bounds = {"CAIRN_MAX_WORKERS": str(AT_ONCE), "CAIRN_JUDGE_CONCURRENCY": str(CALLS_AT_ONCE)}
        left: dict[str, asyncio.Future[bool]] = {}
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        async def watch() -> None:
            """Tells who waits for a job that it has left the grader, and where to."""
            places: Any = {KEYS.inbox("generator"): "0", KEYS.inbox("websearch"): "0"}
            while not over.is_set():
                reply: Any = await redis.xread(places, block=200)
                for stream, entries in reply:
                    places[stream.decode()] = entries[-1][0].decode()
                    for _, fields in entries:
                        waiting = next(job_id for job_id in left if f'"{job_id}"'.encode() in fields[b"data"])
                        left.pop(waiting).set_result(stream.endswith(b"websearch"))

        async def side(asked: AskedQuestion) -> bool:
            msg = command(asked)
            searched: asyncio.Future[bool] = loop.create_future()
            left[msg.header.job_id] = searched
            await admit(redis, [msg])
            return await searched

        watching = asyncio.create_task(watch())
        try:
            with grader(server.url, base_url, **bounds):
                await workers_up(redis, 1)
                yield side
        finally:
            over.set()
            await watching
            await redis.aclose()
            stop_server(Path(directory))
