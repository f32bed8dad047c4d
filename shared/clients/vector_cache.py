"""Passage vectors once computed, kept in one SQLite file: embedding the same text twice is the dearest waste of all.

The key is (fingerprint of the embedder, SHA-256 of the text). Any number of processes may use one file at once. A
cache never stops the work: where the file can't be read or written, that is logged and the vectors are computed.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import structlog

from shared.clients.embedder import Embedder, Vector, Vectors, clean, no_vectors

_log = structlog.get_logger("cairn")
_T = TypeVar("_T")
_Digest = bytes

_BATCH: Final = 400
"""Rows of one statement; SQLite takes at least 999 parameters."""
_BUSY_TIMEOUT_S: Final = 10.0
_MAX_VECTORS: Final = 500_000
"""About 1 GB at 384 dimensions; the oldest leave first, when the file is opened."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS vectors (
    fingerprint TEXT NOT NULL,
    digest BLOB NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('<f2', '<f4')),
    vector BLOB NOT NULL,
    UNIQUE (fingerprint, digest)
)
"""


class VectorCache:
    """The file. Its connection lives in a thread of its own, so that no call blocks the event loop."""

    def __init__(self, path: Path, *, max_vectors: int = _MAX_VECTORS) -> None:
        """`path` is created with its directory by the first call; not before, so that opening costs nothing."""
        self._path = path
        self._max_vectors = max_vectors
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vector-cache")
        self._open: sqlite3.Connection | None = None
        self._closed = False

    async def get(self, fingerprint: str, texts: Sequence[str]) -> dict[int, Vector]:
        """The known vectors by position in `texts`; float32, each of the size it was put with."""
        digests = [digest_of(text) for text in texts]
        known = await self._run("read", lambda: self._select(fingerprint, digests), default=dict[_Digest, Vector]())
        return {place: known[digest] for place, digest in enumerate(digests) if digest in known}

    async def put(self, fingerprint: str, texts: Sequence[str], vectors: npt.NDArray[Any]) -> None:
        """Remember row i of `vectors` (float16 stays so, all else becomes float32) for text i."""
        await self._run("write", lambda: self._insert(fingerprint, texts, vectors), default=None)

    async def aclose(self) -> None:
        """Close the file. Calling it twice does no harm."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    async def _run(self, what: str, work: Callable[[], _T], *, default: _T) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, OSError) as error:
            _log.warning("vector cache unusable", doing=what, path=str(self._path), error=str(error))
            return default

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._open = _connect(self._path, self._max_vectors)
        return self._open

    def _select(self, fingerprint: str, digests: Sequence[_Digest]) -> dict[_Digest, Vector]:
        known: dict[_Digest, Vector] = {}
        for batch in _batches(list(dict.fromkeys(digests))):
            marks = ",".join("?" * len(batch))
            rows = self._connection().execute(
                f"SELECT digest, kind, vector FROM vectors WHERE fingerprint = ? AND digest IN ({marks})",  # noqa: S608
                (fingerprint, *batch),
            )
            known |= {digest: np.frombuffer(blob, dtype=kind).astype(np.float32) for digest, kind, blob in rows}
        return known

    def _insert(self, fingerprint: str, texts: Sequence[str], vectors: npt.NDArray[Any]) -> None:
        kind = "<f2" if vectors.dtype == np.float16 else "<f4"
        rows = [
            (fingerprint, digest_of(text), kind, vector.tobytes())
            for text, vector in zip(texts, vectors.astype(kind), strict=True)
        ]
        for batch in _batches(rows):
            # One short transaction a batch: another process waits for milliseconds, not for a whole import.
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", batch)
            except sqlite3.Error:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


def _connect(path: Path, max_vectors: int) -> sqlite3.Connection:
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(_SCHEMA)
            connection.execute(
                "DELETE FROM vectors WHERE rowid <= (SELECT max(rowid) FROM vectors) - ?", (max_vectors,)
            )
        except sqlite3.Error as error:
            connection.close()
            # SQLite does not wait by itself for the lock that a new file's change to WAL needs.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return connection


class CachedEmbedder:
    """An embedder that asks the cache before it embeds passages. Questions pass through."""

    def __init__(self, embedder: Embedder, cache: VectorCache) -> None:
        self._embedder = embedder
        self._cache = cache

    @property
    def fingerprint(self) -> str:
        return self._embedder.fingerprint

    @property
    def dimension(self) -> int | None:
        return self._embedder.dimension

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return await self._embedder.embed_questions(texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return no_vectors()
        vectors = await self._cache.get(self.fingerprint, texts)
        if missing := [place for place in range(len(texts)) if place not in vectors]:
            vectors |= zip(missing, await self._embed_new(texts, missing), strict=True)
        if len({vector.shape for vector in vectors.values()}) > 1:
            # The model behind this name has changed its vector size: what is kept of it is worthless.
            return await self._embed_new(texts, range(len(texts)))
        return np.stack([vectors[place] for place in range(len(texts))])

    async def _embed_new(self, texts: Sequence[str], places: Sequence[int]) -> Vectors:
        wanted = list(dict.fromkeys(texts[place] for place in places))
        vectors = await self._embedder.embed_passages(wanted)
        await self._cache.put(self.fingerprint, wanted, vectors)
        row_of = {text: row for row, text in enumerate(wanted)}
        fresh: Vectors = vectors[[row_of[texts[place]] for place in places]]
        return fresh

    async def aclose(self) -> None:
        await self._embedder.aclose()
        await self._cache.aclose()


async def import_vectors(cache: VectorCache, fingerprint: str, vectors: Mapping[str, npt.NDArray[Any]]) -> int:
    """Put vectors computed elsewhere (text to vector, all of one size) into the cache; answers how many."""
    if vectors:
        await cache.put(fingerprint, list(vectors), np.stack(list(vectors.values())))
    return len(vectors)


def digest_of(text: str) -> _Digest:
    """SHA-256 of the text as embedders see it."""
    return hashlib.sha256(clean(text).encode()).digest()


def _batches(rows: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH))
