"""Kill the retriever and `cairn ingest` at random instants: the index ends as if nothing had happened.

Documents come in, some are then edited and some removed, twice: undisturbed, and with twenty kills. After each kill of
the retriever a copy of its index is read as the next retriever would find it: no document may be there by half.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from redis.asyncio import Redis

from services.retriever.main import main as serve_retriever
from shared.cli import app
from shared.clients.index import QueryVectors, Rights, encode_query
from shared.clients.index.edge import EdgeIndex
from shared.contracts import Filters, Principal
from shared.runtime.embedded_redis import start_server, stop_server
from shared.runtime.keys import Keys
from shared.runtime.subscriber import ensure_group
from tests.chaos.library import EVERYWHERE, LARGE, PASSAGES, SEED, SMALL, Library
from tests.clients.test_index_support import directory
from tests.support.mock_embeddings import embeddings_process
from tests.support.wait import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

COLLECTION = "documents"
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.chaos.fleet", "tests.chaos.library", __name__])

Holding: TypeAlias = frozenset[tuple[str, str, str]]
"""Passages of one document: id (which stands for document, content and ordinal), digest and text."""
Holdings: TypeAlias = Mapping[str, Holding]
"""By document id."""


def _retrieve(environment: dict[str, str]) -> None:
    os.environ.update(environment)
    serve_retriever()


def _ingest(environment: dict[str, str], arguments: list[str], report: str) -> None:
    os.environ.update(environment)
    os.dup2(os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    app(["ingest", "--json", *arguments])


def _kill(process: BaseProcess | None) -> None:
    assert process is not None
    process.kill()
    process.join()
    process.close()


@dataclass
class Site:
    """One Cairn with nothing but a retriever and somebody who ingests."""

    home: Path
    redis: Redis
    keys: Keys
    environment: dict[str, str]
    retriever: BaseProcess | None = None
    ingestion: BaseProcess | None = None
    arguments: list[str] = field(default_factory=list)
    interrupted: int = 0
    """Kills while a message was in hand."""

    def start_retriever(self) -> None:
        self.retriever = _context.Process(target=_retrieve, args=(self.environment,))
        self.retriever.start()

    def start_ingestion(self, *arguments: str | Path) -> None:
        self.arguments = [str(argument) for argument in arguments]
        report = str(self.home / "report.json")
        self.ingestion = _context.Process(target=_ingest, args=(self.environment, self.arguments, report))
        self.ingestion.start()

    async def kill_retriever(self) -> None:
        await self._note_interruption()
        process, self.retriever = self.retriever, None
        _kill(process)

    async def kill_ingestion(self) -> None:
        await self._note_interruption()
        process, self.ingestion = self.ingestion, None
        _kill(process)

    async def _note_interruption(self) -> None:
        pending: Any = await self.redis.xpending(self.stream, "retriever")
        self.interrupted += bool(pending["pending"])

    async def finish(self) -> dict[str, Any]:
        """The report of `cairn ingest`, once it and everything in the inbox is done."""
        assert self.ingestion is not None
        process = self.ingestion
        await wait_until(lambda: process.exitcode is not None, within_s=120)
        assert process.exitcode == 0, (self.home / "report.json").read_text()
        await wait_until(self._emptied, within_s=30)
        process.close()
        self.ingestion = None
        report: dict[str, Any] = json.loads((self.home / "report.json").read_text())
        return report

    async def stop(self) -> None:
        """SIGTERM to the retriever: it lets go of the index."""
        assert self.retriever is not None
        self.retriever.terminate()
        await asyncio.to_thread(self.retriever.join, 20)
        assert self.retriever.exitcode == 0
        self.retriever = None

    def end(self) -> None:
        for process in (self.retriever, self.ingestion):
            if process is not None:
                _kill(process)

    @property
    def stream(self) -> str:
        return self.keys.inbox("ingest")

    async def settled(self) -> int:
        """Messages done so far."""
        facts: Any = await self.redis.xinfo_stream(self.stream)
        return int(facts["entries-added"]) - int(facts["length"])

    async def _emptied(self) -> bool:
        return not await self.redis.xlen(self.stream)

    async def holdings(self) -> Holdings:
        """What a search finds in a copy of the index as it lies on the disk."""
        with directory() as copy:
            await asyncio.to_thread(shutil.copytree, self.home / "qdrant", copy / "qdrant")
            index = EdgeIndex(copy / "qdrant", fingerprint=None)
            try:
                return await read_all(index)
            finally:
                await index.aclose()


async def read_all(index: EdgeIndex) -> Holdings:
    """All passages that a search finds, by document."""
    rights, query = Rights.of(Principal()), QueryVectors(0, encode_query(EVERYWHERE, "en"), None)
    rankings = await index.search(COLLECTION, [query], rights, Filters(), 4 * PASSAGES)
    texts = {one.passage_id: (one.document_id, one.text) for ranking in rankings for one in ranking.passages}
    digests = await index.digests(COLLECTION, list(texts))
    found: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for passage_id, (document_id, text) in texts.items():
        found[document_id].add((passage_id, digests[passage_id], text))
    return {document_id: frozenset(passages) for document_id, passages in found.items()}


@pytest.fixture
def embeddings_url() -> Iterator[str]:
    with embeddings_process() as url:
        yield url


@pytest.fixture
def place() -> Iterator[Path]:
    with directory() as path:
        yield path


@pytest.fixture
async def sites(place: Path, embeddings_url: str) -> AsyncIterator[tuple[Site, Site]]:
    """One to be left alone and one to be disturbed."""
    server, _ = start_server(place / "redis")
    redis = Redis.from_url(server.url)
    made = []
    for name in ("calm", "rough"):
        keys, home = Keys(f"{name}:"), place / name
        home.mkdir()
        await ensure_group(redis, keys.inbox("retriever"), "retriever")
        await ensure_group(redis, keys.inbox("ingest"), "retriever")
        environment = {
            "CAIRN_REDIS_URL": server.url,
            "CAIRN_TOPIC_PREFIX": keys.prefix,
            "CAIRN_DATA_DIR": str(home),
            "CAIRN_COLLECTION": COLLECTION,
            "CAIRN_EMBED_BASE_URL": embeddings_url,
            "CAIRN_EMBED_MODEL": "mock",
            "CAIRN_CLAIM_AFTER_S": "1.0",
            "CAIRN_HEARTBEAT_S": "0.2",
            "CAIRN_BLOCK_S": "0.2",
            "CAIRN_MAX_DELIVERIES": "8",
            "CAIRN_LOG_LEVEL": "error",
            "CAIRN_LOG_FORMAT": "json",
        }
        made.append(Site(home, redis, keys, environment))
    yield made[0], made[1]
    for site in made:
        site.end()
    await redis.aclose()
    stop_server(place / "redis")


async def disturb(site: Site, rng: random.Random, *, kills: int, gap: int, versions: list[Holdings]) -> None:
    """Kill, look and start again, each time when up to `gap` more messages are done; then let it finish."""
    for _ in range(kills):
        target = await site.settled() + rng.randint(0, gap)
        await wait_until(lambda: _reached(site, target), within_s=60)  # noqa: B023  awaited right here
        for _ in range(rng.randrange(30)):  # an instant within the next message
            await site.redis.ping()
        if rng.random() < 0.3:
            await site.kill_ingestion()
            site.start_ingestion(*site.arguments)
        else:
            await site.kill_retriever()
            none_by_half(await site.holdings(), versions)
            site.start_retriever()


async def _reached(site: Site, target: int) -> bool:
    ended = site.ingestion is not None and site.ingestion.exitcode is not None
    return ended or await site.settled() >= target


def none_by_half(holdings: Holdings, versions: list[Holdings]) -> None:
    """Each document is there as a whole version or two, or not at all."""
    for document_id, held in holdings.items():
        whole = [version[document_id] for version in versions if document_id in version]
        halves = [len(held & passages) for passages in whole if held & passages not in (passages, frozenset())]
        assert not halves, f"{document_id}: {halves} passages of versions of {list(map(len, whole))}"
        assert held <= frozenset().union(*whole), f"{document_id}: passages of no version"


def differences(found: Holdings, wanted: Holdings) -> dict[str, str]:
    """By document, how many of its passages are missing and how many are too many; empty for equal holdings."""
    differing = [name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name)]
    nothing: Holding = frozenset()
    return {
        name: f"-{len(wanted.get(name, nothing) - found.get(name, nothing))}"
        f" +{len(found.get(name, nothing) - wanted.get(name, nothing))}"
        for name in differing
    }


async def test_twenty_kills_leave_no_trace(sites: tuple[Site, Site], place: Path) -> None:
    calm, rough = sites
    library, rng = Library(place / "docs"), random.Random(SEED)

    library.write()
    calm.start_retriever()
    calm.start_ingestion(library.home)
    assert (await calm.finish())["passages"] == PASSAGES
    first = await calm.holdings()
    library.edit()
    calm.start_ingestion(library.home)
    await calm.finish()
    calm.start_ingestion("--delete", *library.gone)
    await calm.finish()
    await calm.stop()
    second = await calm.holdings()
    assert len(second) == SMALL + LARGE - len(library.removed)

    library.write()
    rough.start_retriever()
    rough.start_ingestion(library.home)
    await disturb(rough, rng, kills=10, gap=60, versions=[first])
    await rough.finish()
    assert differences(await rough.holdings(), first) == {}
    library.edit()
    rough.start_ingestion(library.home)
    await disturb(rough, rng, kills=7, gap=80, versions=[first, second])
    await rough.finish()
    rough.start_ingestion("--delete", *library.gone)
    await disturb(rough, rng, kills=3, gap=8, versions=[first, second])
    await rough.finish()
    await rough.stop()

    index = EdgeIndex(rough.home / "qdrant", fingerprint=None)
    assert differences(await read_all(index), second) == {}
    info = await index.info(COLLECTION)
    assert info is not None
    assert info.passages == sum(map(len, second.values()))  # nothing that no search finds is left, either
    await index.aclose()
    assert await rough.redis.xlen(rough.keys.dead) == 0
    assert rough.interrupted >= 12  # or it was a test of processes with nothing to do
