"""Qdrant's own engine in this process: a directory for each collection, no server.

    PATH/owner.lock              held while an EdgeIndex is open
    PATH/COLLECTION/manifest.json
    PATH/COLLECTION/shard/       the engine's files and write-ahead log

The engine holds the interpreter's lock while it works, so that threads would gain nothing: one thread runs all calls,
in order, and is the lock. It searches exhaustively, 1 ms at 5,000 passages and some 50 ms at 100,000; building a graph
(HNSW) would hold the interpreter for minutes. Larger indexes belong on a server.
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
from pathlib import Path
from typing import Final, TypeVar

import qdrant_edge as qe

from shared.clients.index.lexical import LEXICAL_VERSION, SparseVector
from shared.clients.index.manifest import Manifest, check_put, check_search, read_manifest
from shared.clients.index.owner import own
from shared.clients.index.points import (
    DENSE,
    KEYWORD_FIELDS,
    LEXICAL,
    Conditions,
    Rights,
    of_document,
    passage_id_of,
    payload_of,
)
from shared.clients.index.searching import Look, Scored, search_by
from shared.clients.index.types import CollectionInfo, PassageVectors, QueryVectors
from shared.contracts import Document, Filters, Passage
from shared.errors import VectorStoreUnavailable

_T = TypeVar("_T")

_FLUSH_EVERY_S: Final = 30.0
_NEVER_INDEX_KB: Final = 1_000_000_000
"""Threshold above which the engine would build a graph: optimising then only clears away what was deleted."""


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
    ) -> list[list[Passage]]:
        known = await self._run(lambda: self._find(collection))
        if known is None:
            return []
        check_search(collection, known.manifest, self._fingerprint, queries)

        async def run(looks: list[Look]) -> list[list[Scored]]:
            return await self._run(lambda: _look_up(known.shard, looks))

        return await search_by(run, queries, rights, filters, limit, has_dense=known.manifest.dimension is not None)

    async def put(
        self, collection: str, document: Document, passage_total: int, passages: Sequence[PassageVectors]
    ) -> None:
        now = round(time.time(), 3)

        def put() -> None:
            shard = self._get(collection).shard
            points = [_point(document, passage_total, passage, now) for passage in passages]
            shard.update(qe.UpdateOperation.upsert_points(points))
            self._flush_now_and_then()

        await self._run(put)

    async def digests(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, str]:
        def read() -> dict[str, str]:
            known = self._find(collection)
            records = known.shard.retrieve(list(passage_ids), ["digest"], False) if known else []
            return {str(record.id): (record.payload or {}).get("digest", "") for record in records}

        return await self._run(read)

    async def count(self, collection: str, tenant: str, document_id: str, edition: str | None = None) -> int:
        wanted = _filter(of_document(tenant, document_id, edition))

        def count() -> int:
            known = self._find(collection)
            return known.shard.count(qe.CountRequest(filter=wanted)) if known else 0

        return await self._run(count)

    async def retire_others(self, collection: str, tenant: str, document_id: str, edition: str) -> int:
        others = _filter(of_document(tenant, document_id), but_not=("edition", edition))
        return await self._run(lambda: self._delete(collection, others))

    async def delete_document(self, collection: str, tenant: str, document_id: str) -> int:
        return await self._run(lambda: self._delete(collection, _filter(of_document(tenant, document_id))))

    async def info(self, collection: str) -> CollectionInfo | None:
        def info() -> CollectionInfo | None:
            if (known := self._find(collection)) is None:
                return None
            manifest, passages = known.manifest, known.shard.count(qe.CountRequest())
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

    def _delete(self, collection: str, doomed: qe.Filter) -> int:
        if (known := self._find(collection)) is None:
            return 0
        if count := known.shard.count(qe.CountRequest(filter=doomed)):
            known.shard.update(qe.UpdateOperation.delete_points_by_filter(doomed))
            known.shard.optimize()  # does nothing before a fifth of all points is deleted
            self._flush_now_and_then()
        return count

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
    shard = qe.EdgeShard.create(str(draft), _config(manifest))
    for field in KEYWORD_FIELDS:
        shard.update(qe.UpdateOperation.create_field_index(field, qe.PayloadSchemaType.Keyword))
    shard.flush()
    shard.close()
    draft.rename(home / "shard")


def _load(home: Path) -> _Collection:
    try:
        facts = json.loads((home / "manifest.json").read_text("utf-8"))
    except (OSError, ValueError):
        facts = None
    manifest = read_manifest(home.name, facts)
    shard = qe.EdgeShard.load(str(home / "shard"), _config(manifest))
    shard.optimize()
    return _Collection(shard, manifest)


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _config(manifest: Manifest) -> qe.EdgeConfig:
    dense = manifest.dimension
    return qe.EdgeConfig(
        vectors={DENSE: qe.EdgeVectorParams(size=dense, distance=qe.Distance.Cosine)} if dense is not None else None,
        sparse_vectors={LEXICAL: qe.EdgeSparseVectorParams(modifier=qe.Modifier.Idf)},
        optimizers=qe.EdgeOptimizersConfig(indexing_threshold=_NEVER_INDEX_KB),
    )


def _point(document: Document, passage_total: int, passage: PassageVectors, now: float) -> qe.Point:
    vectors: dict[str, qe.NamedVector] = {}
    if passage.lexical:
        vectors[LEXICAL] = _sparse(passage.lexical)
    if passage.dense is not None:
        vectors[DENSE] = passage.dense.tolist()
    payload = payload_of(document, passage_total, passage.draft, indexed_at=now)
    return qe.Point(passage_id_of(document, passage.draft.ordinal), vectors, payload)


def _look_up(shard: qe.EdgeShard, looks: Sequence[Look]) -> list[list[Scored]]:
    lists = shard.query_batch(qe.QueryBatchRequest([_request(look) for look in looks]))
    return [[Scored(str(point.id), point.score, point.payload) for point in found] for found in lists]


def _request(look: Look) -> qe.QueryRequest:
    vector = _sparse(look.vector) if isinstance(look.vector, SparseVector) else look.vector
    corpus = qe.SearchParams(idf=qe.IdfParams(_filter(look.corpus))) if look.corpus else None
    return qe.QueryRequest(
        limit=look.limit,
        query=qe.Query.Nearest(vector, using=look.using),
        filter=_filter(look.must, among=look.among),
        params=corpus,
        with_payload=look.with_payload,
    )


def _sparse(vector: SparseVector) -> qe.SparseVector:
    return qe.SparseVector(list(vector.indices), list(vector.values))


def _filter(
    must: Conditions, *, among: frozenset[str] | None = None, but_not: tuple[str, str] | None = None
) -> qe.Filter:
    conditions: list[qe.ConditionType] = [
        qe.FieldCondition(field, match=qe.MatchAny(list(values))) for field, values in must
    ]
    if among is not None:
        conditions.append(qe.HasIdCondition(set(among)))
    excluded: list[qe.ConditionType] = []
    if but_not is not None:
        field, value = but_not
        excluded.append(qe.FieldCondition(field, match=qe.MatchValue(value)))
    return qe.Filter(must=conditions, must_not=excluded or None)
