"""Qdrant's own engine in this process: a directory for each collection, no server.

    PATH/owner.lock              held while an EdgeIndex is open
    PATH/COLLECTION/manifest.json
    PATH/COLLECTION/shard/       the engine's files and write-ahead log

The engine holds the interpreter's lock while it works, so that threads would gain nothing: one thread runs all calls,
in order, and is the lock. It searches exhaustively (bench/search.py has the times); building a graph (HNSW) would hold
the interpreter for minutes. Indexes of more than 100,000 passages belong on a server.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import qdrant_edge as qe

from shared.clients.embedder import Vector
from shared.clients.index.conditions import NOT_GONE, AnyOf, Condition, Place, Rights
from shared.clients.index.edge_requests import config_of, filter_of, look_up, point_of
from shared.clients.index.lexical import LEXICAL_VERSION
from shared.clients.index.manifest import Manifest, check_put, check_search, read_manifest
from shared.clients.index.owner import own
from shared.clients.index.points import DENSE, KEYWORD_FIELDS, NUMBER_FIELDS, State, Stored, grave_of, standing_of
from shared.clients.index.searching import Look, Scored, search_by
from shared.clients.index.types import CollectionInfo, PassageVectors, QueryVectors
from shared.contracts import Document, Filters
from shared.errors import VectorStoreUnavailable
from shared.passages import Ranking

_T = TypeVar("_T")

_FLUSH_EVERY_S: Final = 30.0
_LOOKS_AT_ONCE: Final = 4
_ALL_VALUES: Final = 10_000_000


class EdgeIndex:
    """`PassageIndex` on the embedded engine. What a call has written survives a kill of the process."""

    def __init__(self, path: Path, *, fingerprint: str | None) -> None:
        """Raises Misconfigured if another process has the directory open, or it can't be written."""
        self._path = path
        self._fingerprint = fingerprint
        self._collections: dict[str, _Collection] = {}
        self._flushed_at = time.monotonic()
        self._lock = own(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="edge")

    @property
    def version(self) -> str:
        return f"{self._fingerprint or 'lexical'}+{LEXICAL_VERSION}"

    async def ensure(self, collection: str, dimension: int | None) -> None:
        wanted = Manifest(self._fingerprint if dimension is not None else None, dimension)

        def ensure() -> None:
            if (known := self._find(collection)) is None:
                _create(self._path / collection, wanted)
                known = self._get(collection)
            check_put(collection, known.manifest, wanted)

        await self._run(ensure)

    async def search(
        self, collection: str, queries: Sequence[QueryVectors], rights: Rights, filters: Filters, limit: int
    ) -> list[Ranking]:
        known = await self._run(lambda: self._find(collection))
        if known is None:
            return []
        check_search(collection, known.manifest, self._fingerprint, queries)

        async def run(looks: list[Look]) -> list[list[Scored]]:
            # A few at a time: the event loop gets its turn in between.
            starts = range(0, len(looks), _LOOKS_AT_ONCE)
            batches = [await self._run(partial(look_up, known.shard, looks[n : n + _LOOKS_AT_ONCE])) for n in starts]
            return [found for batch in batches for found in batch]

        return await search_by(run, queries, rights, filters, limit, has_dense=known.manifest.dimension is not None)

    async def vectors(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, Vector]:
        def read() -> dict[str, Vector]:
            known = self._find(collection)
            if known is None or known.manifest.dimension is None or not passage_ids:
                return {}
            records = known.shard.retrieve(list(passage_ids), False, [DENSE])
            found = {str(record.id): record.vector for record in records if isinstance(record.vector, dict)}
            return {name: np.asarray(vector[DENSE], np.float32) for name, vector in found.items() if DENSE in vector}

        return await self._run(read)

    async def put(
        self,
        collection: str,
        document: Document,
        passage_total: int,
        passages: Sequence[PassageVectors],
        *,
        submitted_at: float,
        state: State = "live",
    ) -> None:
        how = Stored(self.version, submitted_at, state)

        def put() -> None:
            shard = self._get(collection).shard
            points = [point_of(document, passage_total, passage, how) for passage in passages]
            shard.update(qe.UpdateOperation.upsert_points(points))
            self._flush_now_and_then()

        await self._run(put)

    async def digests(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, str]:
        def read() -> dict[str, str]:
            known = self._find(collection)
            records = known.shard.retrieve(list(passage_ids), ["digest"], False) if known else []
            return {str(record.id): (record.payload or {}).get("digest", "") for record in records}

        return await self._run(read)

    async def count(self, place: Place, *also: Condition) -> int:
        wanted = filter_of((*place.conditions, *also))

        def count() -> int:
            known = self._find(place.collection)
            return known.shard.count(qe.CountRequest(filter=wanted)) if known else 0

        return await self._run(count)

    async def publish(self, place: Place, edition: str, document: Document, *, submitted_at: float) -> None:
        payload = {"state": "live", **standing_of(document, submitted_at)}
        passages = filter_of((*place.conditions, AnyOf("edition", (edition,))))
        operation = qe.UpdateOperation.set_payload_by_filter(passages, payload)
        await self._run(lambda: self._get(place.collection).shard.update(operation))

    async def delete(self, place: Place, *also: Condition) -> int:
        doomed = filter_of((*place.conditions, *also))

        def delete() -> int:
            if (known := self._find(place.collection)) is None:
                return 0
            if count := known.shard.count(qe.CountRequest(filter=doomed)):
                known.shard.update(qe.UpdateOperation.delete_points_by_filter(doomed))
                known.shard.optimize()  # does nothing before a fifth of all points is deleted
                self._flush_now_and_then()
            return count

        return await self._run(delete)

    async def bury(self, place: Place, *, submitted_at: float) -> None:
        mark, payload = grave_of(place, submitted_at)

        def bury() -> None:
            if (known := self._find(place.collection)) is not None:
                known.shard.update(qe.UpdateOperation.upsert_points([qe.Point(mark, {}, payload)]))

        await self._run(bury)

    async def documents(self, collection: str, tenant: str) -> list[str]:
        theirs = filter_of((*Place(collection, tenant).conditions, NOT_GONE))
        wanted = qe.FacetRequest("document_id", _ALL_VALUES, exact=True, filter=theirs)

        def read() -> list[str]:
            known = self._find(collection)
            return sorted(str(hit.value) for hit in known.shard.facet(wanted).hits) if known else []

        return await self._run(read)

    async def info(self, collection: str) -> CollectionInfo | None:
        def info() -> CollectionInfo | None:
            if (known := self._find(collection)) is None:
                return None
            manifest, passages = known.manifest, known.shard.count(qe.CountRequest(filter=filter_of((NOT_GONE,))))
            return CollectionInfo(passages, manifest.fingerprint, manifest.dimension, manifest.lexical)

        return await self._run(info)

    async def aclose(self) -> None:
        if self._lock.closed:
            return
        await self._run(self._close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Exception as error:
            if type(error) is not Exception:
                raise
            # The engine raises bare Exception for everything of its own.
            raise VectorStoreUnavailable(f"the embedded index in {self._path} failed: {error}") from error

    def _find(self, collection: str) -> _Collection | None:
        """The collection, opened if need be; None if there is none."""
        home = self._path / collection
        if collection not in self._collections and (home / "shard").is_dir():
            self._collections[collection] = _load(home)
        return self._collections.get(collection)

    def _get(self, collection: str) -> _Collection:
        if (known := self._find(collection)) is None:
            raise VectorStoreUnavailable(f"collection {collection!r} is gone from {self._path}")
        return known

    def _flush_now_and_then(self) -> None:
        # What is written is in the engine's log and outlives this process. A flush, some 0.1 s with the interpreter
        # held, is for a power failure, and keeps the log short.
        if time.monotonic() - self._flushed_at > _FLUSH_EVERY_S:
            for known in self._collections.values():
                known.shard.flush()
            self._flushed_at = time.monotonic()

    def _close(self) -> None:
        for known in self._collections.values():
            known.shard.flush()
            known.shard.close()
        self._collections.clear()
        self._lock.close()


@dataclass(frozen=True, slots=True)
class _Collection:
    shard: qe.EdgeShard
    manifest: Manifest


def _create(home: Path, manifest: Manifest) -> None:
    """Make an empty collection. It appears by a rename, so that a crash leaves all of it or nothing."""
    draft = home / "shard.new"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    _write(home / "manifest.json", json.dumps(manifest.to_json()))
    shard = qe.EdgeShard.create(str(draft), config_of(manifest))
    for field in KEYWORD_FIELDS:
        shard.update(qe.UpdateOperation.create_field_index(field, qe.PayloadSchemaType.Keyword))
    for field in NUMBER_FIELDS:
        shard.update(qe.UpdateOperation.create_field_index(field, qe.PayloadSchemaType.Float))
    shard.flush()
    shard.close()
    draft.rename(home / "shard")


def _load(home: Path) -> _Collection:
    try:
        facts = json.loads((home / "manifest.json").read_text("utf-8"))
    except (OSError, ValueError):
        facts = None
    manifest = read_manifest(home.name, facts)
    shard = qe.EdgeShard.load(str(home / "shard"), config_of(manifest))
    shard.optimize()
    return _Collection(shard, manifest)


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
