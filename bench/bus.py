"""What the bus costs: the pipeline with handlers that do nothing, against the same hops on bare redis-py.

    python -m bench.bus [--jobs 1500] [--rounds 3]

Each job passes all six services in seven deliveries (the grader twice, as after a web search). One process a service,
real Redis. Both sides read the same contracts, run the same handlers and finish with the same Lua steps:

    cairn        shared/runtime as in production: FastStream, slots, heartbeats, metrics, canonical log (to /dev/null)
    bare         XREADGROUP COUNT 1, then EVALSHA, one message after the other: no framework, nothing that could fail
    bare batch   XREADGROUP COUNT 64, then all EVALSHAs in one pipeline

CPU is that of the six service processes, from /proc. Ratios are of medians over rounds run in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import redis as redis_sync
import uvloop
from redis.asyncio import Redis

from services.gateway.decision import admission, read_ask
from services.gateway.handler import admit
from services.gateway.settings import JwtSettings
from services.gateway.tokens import TokenVerifier
from shared.contracts import (
    Answered,
    Ask,
    Budget,
    Command,
    Contract,
    Evidence,
    Generate,
    Grade,
    Passage,
    PassageGrade,
    Principal,
    Retrieve,
    Rewrite,
    SearchWeb,
)
from shared.runtime.delivery import Delivery, read_command
from shared.runtime.embedded_redis import start_server, stop_server
from shared.runtime.finishing import Finishing, Took
from shared.runtime.keys import INBOXES, STAGES, Keys
from shared.runtime.logs import set_up_logs
from shared.runtime.stage import Inbox, Stage
from shared.runtime.steps import Steps
from shared.runtime.subscriber import ensure_group
from shared.runtime.worker import Worker
from shared.settings import ObserveSettings, RuntimeSettings

KEYS = Keys("bench:")
SETTINGS = RuntimeSettings()
MAX_BYTES = 1_048_576
SLOTS = 32


def padding(size: int) -> tuple[Evidence, ...]:
    """Evidence that brings a message to about `size` bytes."""
    if size < 4000:
        return ()
    text = "x" * (size // 2)
    passage = Passage(passage_id="p", document_id="d", title="t", uri="u", text=text)
    return (Evidence(passage=passage, grade=PassageGrade(score=1.0), strips=(text,)),)


async def rewrite(msg: Rewrite, *, size: int) -> Retrieve:
    return Retrieve(
        header=msg.header, asked=msg.asked, route="factual", queries=(msg.asked.question,), evidence=padding(size)
    )


async def retrieve(msg: Retrieve) -> Grade:
    return Grade(
        header=msg.header, asked=msg.asked, route=msg.route, queries=msg.queries, passages=(), evidence=msg.evidence
    )


async def grade(msg: Grade) -> Generate | SearchWeb:
    common: dict[str, Any] = {
        "header": msg.header,
        "asked": msg.asked,
        "route": msg.route,
        "verdict": "correct",
        "evidence": msg.evidence,
    }
    return Generate(**common) if msg.searched_web else SearchWeb(queries=msg.queries, **common)


async def search_web(msg: SearchWeb) -> Grade:
    return Grade(
        header=msg.header,
        asked=msg.asked,
        route=msg.route,
        queries=msg.queries,
        passages=(),
        evidence=msg.evidence,
        searched_web=True,
    )


async def generate(msg: Generate) -> Answered:
    return Answered.ending(msg.header, "answered", now=time.time(), answer="yes")


def inbox_of(name: str, size: int) -> Inbox:
    if name == "gateway":
        return Inbox.of(
            admit,
            max_workers=SLOTS,
            read=read_ask,
            verifier=TokenVerifier(JwtSettings()),
            budget=Budget(),
        )
    if name == "rewriter":
        return Inbox.of(rewrite, max_workers=SLOTS, size=size)
    handlers: dict[str, Callable[..., Awaitable[Contract]]] = {
        "retriever": retrieve,
        "grader": grade,
        "websearch": search_web,
        "generator": generate,
    }
    return Inbox.of(handlers[name], max_workers=SLOTS)


def serve_cairn(name: str, url: str, size: int) -> None:
    """One service on the runtime."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    set_up_logs(ObserveSettings(log_format="json"), stage=name)
    raise SystemExit(uvloop.run(Worker(Stage(name, [inbox_of(name, size)]), url, KEYS, SETTINGS).run()))


def serve_bare(name: str, url: str, size: int, count: int) -> None:
    """One service on redis-py alone."""
    uvloop.run(_bare(name, url, size, count))


async def _bare(name: str, url: str, size: int, count: int) -> None:
    redis: Any = Redis.from_url(url)
    inbox = inbox_of(name, size)
    stream, group = KEYS.inbox(name), INBOXES[name]
    finishing = Finishing(inbox, Steps(redis, KEYS, SETTINGS, consumer="bare"), "bare")
    while True:
        reply = await redis.xreadgroup(group, "bare", {stream: ">"}, count=count, block=1000)
        for _, entries in reply:
            work = [
                _bare_one(inbox, finishing, Delivery(name, entry_id.decode(), fields)) for entry_id, fields in entries
            ]
            if count == 1:
                await work[0]
            else:
                await asyncio.gather(*work)  # their steps go out in one pipeline


async def _bare_one(inbox: Inbox, finishing: Finishing, delivery: Delivery) -> None:
    message: Any = inbox.read(delivery, MAX_BYTES)
    await finishing.succeed(delivery, message, await inbox.handler(message), Took(0.0, 0.0))


@dataclass
class Measured:
    """Of one run."""

    jobs_per_s: float
    cpu_ms_per_job: float


def cpu_s(processes: list[BaseProcess]) -> float:
    """User and system time of these processes so far."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(url: str, target: Callable[..., None], arguments: tuple[Any, ...], jobs: int) -> Measured:
    """Warm up, then time `jobs` jobs submitted at once."""
    client: Any = redis_sync.Redis.from_url(url)
    client.flushall()
    asyncio.run(_groups(url))
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = [context.Process(target=target, args=(name, url, *arguments)) for name in STAGES]
    for process in processes:
        process.start()
    _submit(client, 100, "warm")
    _await_results(client, 100)
    before, started = cpu_s(processes), time.perf_counter()
    _submit(client, jobs, "job")
    _await_results(client, 100 + jobs)
    seconds, spent = time.perf_counter() - started, cpu_s(processes) - before
    for process in processes:
        process.kill()
        process.join()
    client.close()
    return Measured(jobs / seconds, spent / jobs * 1000)


async def _groups(url: str) -> None:
    redis = Redis.from_url(url)
    for inbox, group in INBOXES.items():
        await ensure_group(redis, KEYS.inbox(inbox), group)
    await redis.aclose()


def _submit(client: Any, jobs: int, name: str) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(jobs):
        data = {"question": "Why is the sky blue?", "job_id": f"{name}-{number}", "deadline_s": 3600}
        pipeline.xadd(KEYS.inbox("gateway"), {"data": json.dumps(data)})
    pipeline.execute()


def _await_results(client: Any, wanted: int) -> None:
    deadline = time.monotonic() + 300
    while client.xlen(KEYS.results) < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{client.xlen(KEYS.results)} of {wanted} jobs in 300 s")
        time.sleep(0.005)


def message_bytes(size: int) -> int:
    """Bytes of the message between grader and web search."""
    ask = Ask(question="Why is the sky blue?", job_id="job-1", entry_id="1-0")
    first: Command = admission(ask, Principal(), submitted_at=0, budget=Budget())
    command = SearchWeb(
        header=first.header,
        asked=first.asked,
        route="factual",
        queries=("q",),
        verdict="correct",
        evidence=padding(size),
    )
    return len(
        read_command(
            SearchWeb, Delivery("x", "1-0", {b"data": command.model_dump_json().encode()}), MAX_BYTES
        ).model_dump_json()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sides: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
        "cairn": (serve_cairn, ()),
        "bare": (serve_bare, (1,)),
        "bare batch": (serve_bare, (64,)),
    }
    with tempfile.TemporaryDirectory() as directory:
        server, _ = start_server(Path(directory))
        try:
            for size in (1_000, 20_000):
                print(f"messages of {message_bytes(size):,} bytes, {arguments.jobs} jobs, {arguments.rounds} rounds")
                runs: dict[str, list[Measured]] = {name: [] for name in sides}
                for _ in range(arguments.rounds):
                    for name, (target, extra) in sides.items():
                        runs[name].append(run(server.url, target, (size, *extra), arguments.jobs))
                rate = {name: statistics.median(each.jobs_per_s for each in found) for name, found in runs.items()}
                cpu = {name: statistics.median(each.cpu_ms_per_job for each in found) for name, found in runs.items()}
                for name in sides:
                    print(
                        f"  {name:<11} {rate[name]:7.0f} jobs/s   {cpu[name]:6.2f} ms CPU a job   "
                        f"cairn: x{rate['cairn'] / rate[name]:.2f} the rate, x{cpu['cairn'] / cpu[name]:.2f} the CPU"
                    )
        finally:
            stop_server(Path(directory))


if __name__ == "__main__":
    main()
