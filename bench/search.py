"""How long a search in the embedded index takes: `python -m bench.search [--passages 5000 100000] [--searches 200]`.

The index is built without an embedder: random unit vectors of 384 dimensions, and made-up texts of about 900 characters
whose words are as common as a language's (Zipf). Every search is by vector and by words, for the 40 best of each, and
as somebody with one of four roles, who may read a quarter of the passages and what everybody may: half of all. A job
brings one to four queries.

`stall` is the longest time in which the event loop could do nothing else: a task beside the searches wants to run each
millisecond. The same task beside nothing shows what the machine alone does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.ingest import DIMENSION, PASSAGE_CHARS, machine, words
from shared.clients.index import (
    PassageIndex,
    PassageVectors,
    QueryVectors,
    Rights,
    encode_passage,
    encode_query,
    passage_text,
)
from shared.clients.index.edge import EdgeIndex
from shared.contracts import PUBLIC_ROLE, Document, Filters, PassageDraft, Principal

COLLECTION: Final = "bench"
PER_DOCUMENT: Final = 100
LIMIT: Final = 40
ROLES: Final = ("sales", "support", "finance", PUBLIC_ROLE)
ASKER: Final = Principal(roles=("sales",))
TICK_S: Final = 0.001


def unit_vectors(rng: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    vectors = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    normed: npt.NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return normed


async def build(index: PassageIndex, passages: int) -> list[str]:
    """Fill the index; answers the texts."""
    rng, dice = np.random.default_rng(3), random.Random(3)
    await index.ensure(COLLECTION, DIMENSION)
    texts: list[str] = []
    for start in range(0, passages, PER_DOCUMENT):
        size = min(PER_DOCUMENT, passages - start)
        role = ROLES[start // PER_DOCUMENT % len(ROLES)]
        document = Document(
            document_id=f"d{start}", title=f"Guide {start}", uri="bench:", content_hash="1", acl=(role,), language="en"
        )
        drafts = [PassageDraft(ordinal=number, text=words(dice, PASSAGE_CHARS)) for number in range(size)]
        encoded = [
            PassageVectors(draft, encode_passage(passage_text(document, draft), "en"), vector)
            for draft, vector in zip(drafts, unit_vectors(rng, size), strict=True)
        ]
        await index.put(COLLECTION, document, size, encoded, submitted_at=1.0)
        texts += (draft.text for draft in drafts)
    return texts


def questions(texts: Sequence[str], queries: int, count: int) -> list[list[QueryVectors]]:
    """`count` searches of `queries` queries each; a query is eight words of one passage."""
    rng, dice = np.random.default_rng(5), random.Random(5)
    return [
        [
            QueryVectors(number, encode_query(" ".join(dice.sample(dice.choice(texts).split(), 8)), "en"), vector)
            for number, vector in enumerate(unit_vectors(rng, queries))
        ]
        for _ in range(count)
    ]


class Ticker:
    """Wants to run every millisecond and remembers how long it had to wait at most."""

    def __init__(self) -> None:
        self.stall_s = 0.0

    async def run(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            self.stall_s, last = max(self.stall_s, now - last - TICK_S), now


@asynccontextmanager
async def ticking() -> AsyncIterator[Ticker]:
    ticker = Ticker()
    task = asyncio.create_task(ticker.run())
    try:
        yield ticker
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@dataclass(frozen=True)
class Latency:
    """In milliseconds."""

    p50: float
    p95: float
    stall: float
    cpu: float
    """Of the whole process, a search; what a busy machine changes least."""
    found: float
    """Passages a search brought, on average."""


async def measure(index: PassageIndex, searches: Sequence[Sequence[QueryVectors]]) -> Latency:
    """One search after the other."""
    rights = Rights.of(ASKER)
    for queries in islice(searches, 5):  # warms up
        await index.search(COLLECTION, queries, rights, Filters(), LIMIT)
    taken, found, before_s = [], 0, time.process_time()
    async with ticking() as ticker:
        for queries in searches:
            started = time.perf_counter()
            rankings = await index.search(COLLECTION, queries, rights, Filters(), LIMIT)
            taken.append(time.perf_counter() - started)
            found += len({one.passage_id for ranking in rankings for one in ranking.passages})
    return Latency(
        p50=statistics.median(taken) * 1e3,
        p95=statistics.quantiles(taken, n=20)[-1] * 1e3,
        stall=ticker.stall_s * 1e3,
        cpu=(time.process_time() - before_s) / len(searches) * 1e3,
        found=found / len(searches),
    )


async def run(passages: int, searches: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        index = EdgeIndex(Path(directory), fingerprint="bench")
        started = time.perf_counter()
        texts = await build(index, passages)
        print(f"{passages:,} passages, built in {time.perf_counter() - started:.0f} s")
        for queries in (1, 4):
            found = await measure(index, questions(texts, queries, searches))
            print(
                f"  {queries} queries a search: p50 {found.p50:7.1f} ms   p95 {found.p95:7.1f} ms   "
                f"CPU {found.cpu:6.1f} ms   stall {found.stall:6.1f} ms   {found.found:.0f} passages"
            )
        await index.aclose()


async def idle_stall_ms() -> float:
    """The longest stall of a loop that has nothing to do for a second."""
    async with ticking() as ticker:
        await asyncio.sleep(1)
    return ticker.stall_s * 1e3


async def run_all(sizes: Sequence[int], searches: int) -> None:
    print(f"{machine()}, stall of an idle loop {await idle_stall_ms():.1f} ms, {searches} searches each")
    for passages in sizes:
        await run(passages, searches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[5_000, 100_000])
    parser.add_argument("--searches", type=int, default=200)
    chosen = parser.parse_args()
    asyncio.run(run_all(chosen.passages, chosen.searches))


if __name__ == "__main__":
    main()
