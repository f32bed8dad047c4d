"""How much faster more graders are: `python -m bench.scaling [--jobs 400]`.

Real `cairn worker grader` processes on the embedded Valkey, and a mock judge of 200 ms in a process of its own. Every
worker has the same bounds (2 jobs, 8 calls in flight), so that waiting for the judge is what limits it, not the cores
here. The jobs (4 passages each) are admitted by the real step straight into the grader's inbox; the clock runs until
the last has left for the generator's or the web search's, where nobody works.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from bench.fanout import mock_process
from shared.contracts import Grade
from shared.runtime.embedded_redis import start_server, stop_server
from shared.runtime.keys import INBOXES, Keys
from shared.runtime.steps import Steps
from shared.runtime.subscriber import ensure_group
from shared.settings import RuntimeSettings
from tests.support.judged import KINDS, job

KEYS: Final = Keys("scaling:")
ENVIRONMENT: Final = {
    "CAIRN_TOPIC_PREFIX": KEYS.prefix,
    "CAIRN_MAX_WORKERS": "2",
    "CAIRN_JUDGE_CONCURRENCY": "8",
    "CAIRN_JUDGE_MODEL": "mock",
    "CAIRN_JUDGE_CACHE_TTL_S": "0",
    "CAIRN_LOG_LEVEL": "error",
}
WITHIN_S: Final = 300.0


@contextmanager
def grader(redis_url: str, judge_url: str, **settings: str) -> Iterator[None]:
    """One worker process, as an operator starts it."""
    where = {"CAIRN_REDIS_URL": redis_url, "CAIRN_JUDGE_BASE_URL": judge_url}
    command = [sys.executable, "-m", "shared.cli", "worker", "grader"]
    with subprocess.Popen(command, env={**os.environ, **ENVIRONMENT, **where, **settings}) as process:
        try:
            yield
        finally:
            process.terminate()


async def ready(redis: Redis) -> None:
    """An empty server with every inbox in place."""
    await redis.flushall()
    for inbox, group in INBOXES.items():
        await ensure_group(redis, KEYS.inbox(inbox), group)


async def admit(redis: Redis, jobs: list[Grade]) -> None:
    """Make jobs of them, as the gateway would, but for the grader first."""
    steps = Steps(redis, KEYS, RuntimeSettings(_env_file=None), consumer="bench")
    for _ in jobs:
        await redis.xadd(KEYS.inbox("gateway"), {"question": "?"})
    reply: Any = await redis.xreadgroup("gateway", "bench", {KEYS.inbox("gateway"): ">"}, count=len(jobs))
    await asyncio.gather(
        *(
            steps.admit(
                entry_id.decode(),
                job_id=msg.header.job_id,
                tenant=msg.header.principal.tenant,
                submitted_at=msg.header.submitted_at,
                deadline=msg.header.deadline,
                inbox="grader",
                command=msg.model_dump_json(),
                event="{}",
            )
            for (entry_id, _), msg in zip(reply[0][1], jobs, strict=True)
        )
    )


async def awaited(redis: Redis, inboxes: tuple[str, ...], wanted: int) -> None:
    """Returns once so many jobs wait in these inboxes."""
    async with asyncio.timeout(WITHIN_S):
        while sum([await redis.xlen(KEYS.inbox(inbox)) for inbox in inboxes]) < wanted:  # noqa: ASYNC110  it is Redis that is waited for
            await asyncio.sleep(0.005)


async def workers_up(redis: Redis, wanted: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while len(await redis.xinfo_consumers(KEYS.inbox("grader"), "grader")) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def some_jobs(count: int, passages: int) -> list[Grade]:
    """Of all three kinds, with an hour to their deadline."""
    rng, hour = random.Random(3), {"deadline": time.time() + 3600}
    made = [job(KINDS[number % len(KINDS)], number, rng, passages=passages) for number in range(count)]
    return [msg.model_copy(update={"header": msg.header.model_copy(update=hour)}) for msg in made]


async def jobs_per_s(redis_url: str, judge_url: str, workers: int, jobs: int, passages: int) -> float:
    """The rate of so many workers."""
    redis: Redis = Redis.from_url(redis_url)
    await ready(redis)
    with ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(grader(redis_url, judge_url))
        await workers_up(redis, workers)
        started = time.perf_counter()
        await admit(redis, some_jobs(jobs, passages))
        await awaited(redis, ("generator", "websearch"), jobs)
        seconds = time.perf_counter() - started
    await redis.aclose()
    return jobs / seconds


async def run(counts: list[int], jobs: int, latency_ms: float) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        mock_process(latency_ms, script="tests.support.judged:faultless") as judge_url,
    ):
        server, _ = start_server(Path(directory))
        try:
            rates: list[float] = []
            for workers in counts:
                rates.append(await jobs_per_s(server.url, judge_url, workers, jobs, passages=4))
                print(f"{workers} graders: {rates[-1]:6.2f} jobs/s   x{rates[-1] / rates[0]:.2f}", flush=True)
        finally:
            stop_server(Path(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--latency-ms", type=float, default=200)
    chosen = parser.parse_args()
    asyncio.run(run(chosen.workers, chosen.jobs, chosen.latency_ms))


if __name__ == "__main__":
    main()
