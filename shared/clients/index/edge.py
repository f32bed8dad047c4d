"""The embedded index: Qdrant's own engine in this process, a directory a collection, one owner.

The engine writes ahead, so what `put` acknowledged survives kill -9. Its calls block and let other threads run; they
are made in threads, writes one at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from shared.clients.index.points import (
    DENSE,
    LEXICAL,
    EmbeddedPassage,
    SearchQuery,
    Where,
    any_version_of,
    cosine,
    passage_of,
    payload_of,
    point_id,
    readable_by,
    version_of,
)
from shared.contracts import Document, Filters, Passage, Principal
from shared.errors import IndexMismatch, Misconfigured, VectorStoreUnavailable


class EdgeIndex:
    """`PassageIndex` under `root`. `fingerprint` and `dimension` are the embedder's; None searches by words alone."""

    def __init__(self, root: Path, *, fingerprint: str, dimension: int | None) -> None:
        self.root = root
        self.fingerprint = fingerprint
        self.dimension = dimension
        self._shards: dict[str, edge.EdgeShard] = {}
        self._writing = asyncio.Lock()

    async def search(
        self, collection: str, queries: Sequence[SearchQuery], reader: Principal, filters: Filters, *, limit: int
    ) -> list[list[list[Passage]]]:
        shard = await self._shard(collection, create=False)
        if shard is None:
            return [[[] for _ in _arms(query)] for query in queries]
        condition = _filter(readable_by(reader, filters))
        requests = [
            edge.QueryRequest(
                limit=limit,
                query=edge.Query.Nearest(vector, using=using),
                filter=condition,
                with_payload=True,
                with_vector=[DENSE] if query.dense is not None and using == LEXICAL else False,
            )
            for query in queries
            for using, vector in _arms(query)
        ]
        with _translated():
            replies = iter(await asyncio.to_thread(shard.query_batch, edge.QueryBatchRequest(requests)))
        return [[_ranked(next(replies), query, using) for using, _ in _arms(query)] for query in queries]

    async def put(self, collection: str, document: Document, passages: Sequence[EmbeddedPassage]) -> None:
        points = [
            edge.Point(point_id(document, each.draft.ordinal), _vectors(each), payload_of(document, each.draft))
            for each in passages
        ]
        async with self._writing:
            shard = await self._shard(collection, create=True)
            assert shard is not None
            with _translated():
                await asyncio.to_thread(shard.update, edge.UpdateOperation.upsert_points(points))

    async def count(self, collection: str, document: Document, *, other_versions: bool = False) -> int:
        shard = await self._shard(collection, create=False)
        if shard is None:
            return 0
        condition = _filter(version_of(document, other_versions=other_versions))
        with _translated():
            return await asyncio.to_thread(shard.count, edge.CountRequest(exact=True, filter=condition))

    async def delete(self, collection: str, document: Document, *, other_versions: bool = False) -> None:
        conditions = version_of(document, other_versions=True) if other_versions else any_version_of(document)
        async with self._writing:
            shard = await self._shard(collection, create=False)
            if shard is not None:
                with _translated():
                    operation = edge.UpdateOperation.delete_points_by_filter(_filter(conditions))
                    await asyncio.to_thread(shard.update, operation)

    async def aclose(self) -> None:
        async with self._writing:
            shards, self._shards = list(self._shards.values()), {}
            for shard in shards:
                await asyncio.to_thread(shard.close)

    async def _shard(self, collection: str, *, create: bool) -> edge.EdgeShard | None:
        if collection not in self._shards:
            shard = self._open(self.root / collection, create=create)
            if shard is None:
                return None
            self._shards[collection] = shard
        return self._shards[collection]

    def _open(self, directory: Path, *, create: bool) -> edge.EdgeShard | None:
        made_with, files = directory / "made_with.json", directory / "shard"
        if made_with.exists():
            _check(directory, json.loads(made_with.read_text("utf-8"))["fingerprint"], self.fingerprint)
            with _translated():
                return edge.EdgeShard.load(str(files))
        if not create:
            return None
        files.mkdir(parents=True, exist_ok=True)
        dense = {}
        if self.dimension is not None:
            dense[DENSE] = edge.EdgeVectorParams(size=self.dimension, distance=edge.Distance.Cosine)
        config = edge.EdgeConfig(
            vectors=dense, sparse_vectors={LEXICAL: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}
        )
        with _translated():
            shard = edge.EdgeShard.create(str(files), config)
        draft = made_with.with_suffix(".new")
        draft.write_text(json.dumps({"fingerprint": self.fingerprint, "dimension": self.dimension}), "utf-8")
        draft.replace(made_with)
        return shard


def _check(collection: Path, found: str, wanted: str) -> None:
    if found != wanted:
        raise IndexMismatch(
            f"collection {collection.name} was built with {found}, and this retriever embeds with {wanted}: "
            "ingest into a new collection (CAIRN_COLLECTION), or set CAIRN_EMBED_* back"
        )


def _arms(query: SearchQuery) -> Iterator[tuple[str, Any]]:
    if query.dense is not None:
        yield DENSE, list(query.dense)
    yield LEXICAL, edge.SparseVector(list(query.lexical.indices), list(query.lexical.values))


def _vectors(passage: EmbeddedPassage) -> dict[str, Any]:
    vectors: dict[str, Any] = {LEXICAL: edge.SparseVector(list(passage.lexical.indices), list(passage.lexical.values))}
    if passage.dense is not None:
        vectors[DENSE] = list(passage.dense)
    return vectors


def _ranked(points: Sequence[edge.ScoredPoint], query: SearchQuery, using: str) -> list[Passage]:
    ranked = []
    for point in points:
        similarity = point.score if using == DENSE else None
        vector: Any = (point.vector or {}).get(DENSE) if isinstance(point.vector, dict) else None
        if vector is not None and query.dense is not None:
            similarity = cosine(query.dense, vector)
        ranked.append(passage_of(str(point.id), point.payload or {}, point.score, similarity))
    return ranked


def _filter(conditions: Sequence[Where]) -> edge.Filter:
    must: list[Any] = []
    must_not: list[Any] = []
    for each in conditions:
        condition = edge.FieldCondition(key=each.field, match=edge.MatchAny(list(each.values)))
        (must_not if each.negated else must).append(condition)
    return edge.Filter(must=must, must_not=must_not)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the engine raises bare Exception
        if "WouldBlock" in str(error):
            raise Misconfigured(
                "another process owns this index: one retriever at a time may open CAIRN_QDRANT_PATH; "
                "run more of them against a Qdrant server (CAIRN_QDRANT_URL)"
            ) from error
        raise VectorStoreUnavailable(f"the embedded index: {error}") from error
