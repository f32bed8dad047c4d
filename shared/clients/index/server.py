"""A Qdrant server (or qdrant-client's local mode, in tests), through its query API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from shared.clients.index.points import (
    DENSE,
    KEYWORD_FIELDS,
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


class QdrantIndex:
    """`PassageIndex` on a server. `fingerprint` and `dimension` are the embedder's; None searches by words alone."""

    def __init__(self, client: AsyncQdrantClient, *, fingerprint: str, dimension: int | None) -> None:
        self.client = client
        self.fingerprint = fingerprint
        self.dimension = dimension
        self._known: set[str] = set()

    async def search(
        self, collection: str, queries: Sequence[SearchQuery], reader: Principal, filters: Filters, *, limit: int
    ) -> list[list[list[Passage]]]:
        with _translated():
            if not await self._ready(collection, create=False):
                return [[[] for _ in _arms(query)] for query in queries]
            condition = _filter(readable_by(reader, filters))
            requests = [
                models.QueryRequest(
                    query=vector,
                    using=using,
                    limit=limit,
                    filter=condition,
                    with_payload=True,
                    with_vector=[DENSE] if query.dense is not None and using == LEXICAL else False,
                )
                for query in queries
                for using, vector in _arms(query)
            ]
            replies = iter(await self.client.query_batch_points(collection, requests))
        return [[_ranked(next(replies).points, query, using) for using, _ in _arms(query)] for query in queries]

    async def put(self, collection: str, document: Document, passages: Sequence[EmbeddedPassage]) -> None:
        points = [
            models.PointStruct(
                id=point_id(document, each.draft.ordinal),
                vector=_vectors(each),
                payload=payload_of(document, each.draft),
            )
            for each in passages
        ]
        with _translated():
            await self._ready(collection, create=True)
            await self.client.upsert(collection, points, wait=True)

    async def count(self, collection: str, document: Document, *, other_versions: bool = False) -> int:
        with _translated():
            if not await self._ready(collection, create=False):
                return 0
            condition = _filter(version_of(document, other_versions=other_versions))
            return (await self.client.count(collection, condition, exact=True)).count

    async def delete(self, collection: str, document: Document, *, other_versions: bool = False) -> None:
        conditions = version_of(document, other_versions=True) if other_versions else any_version_of(document)
        with _translated():
            if await self._ready(collection, create=False):
                selector = models.FilterSelector(filter=_filter(conditions))
                await self.client.delete(collection, selector, wait=True)

    async def aclose(self) -> None:
        await self.client.close()

    async def _ready(self, collection: str, *, create: bool) -> bool:
        """Whether the collection is there and ours; made first if `create`. Looked up once for each collection."""
        if collection in self._known:
            return True
        if not await self.client.collection_exists(collection):
            if not create:
                return False
            await self._create(collection)
        found = (await self.client.get_collection(collection)).config.metadata or {}
        if found.get("fingerprint") != self.fingerprint:
            raise IndexMismatch(
                f"collection {collection} was built with {found.get('fingerprint')}, and this retriever embeds with "
                f"{self.fingerprint}: ingest into a new collection (CAIRN_COLLECTION), or set CAIRN_EMBED_* back"
            )
        self._known.add(collection)
        return True

    async def _create(self, collection: str) -> None:
        dense = {}
        if self.dimension is not None:
            dense[DENSE] = models.VectorParams(size=self.dimension, distance=models.Distance.COSINE)
        try:
            await self.client.create_collection(
                collection,
                vectors_config=dense,
                sparse_vectors_config={LEXICAL: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                metadata={"fingerprint": self.fingerprint, "dimension": self.dimension},
            )
        except UnexpectedResponse as error:
            if error.status_code != 409:  # another retriever made it meanwhile
                raise
        for field in KEYWORD_FIELDS:
            schema = models.KeywordIndexParams(
                type=models.KeywordIndexType.KEYWORD, is_tenant=True if field == "tenant" else None
            )
            await self.client.create_payload_index(collection, field, field_schema=schema)


def _arms(query: SearchQuery) -> Iterator[tuple[str, Any]]:
    if query.dense is not None:
        yield DENSE, list(query.dense)
    yield LEXICAL, models.SparseVector(indices=list(query.lexical.indices), values=list(query.lexical.values))


def _vectors(passage: EmbeddedPassage) -> dict[str, Any]:
    lexical = models.SparseVector(indices=list(passage.lexical.indices), values=list(passage.lexical.values))
    return {LEXICAL: lexical} | ({DENSE: list(passage.dense)} if passage.dense is not None else {})


def _ranked(points: Sequence[models.ScoredPoint], query: SearchQuery, using: str) -> list[Passage]:
    ranked = []
    for point in points:
        similarity = point.score if using == DENSE else None
        vector: Any = point.vector.get(DENSE) if isinstance(point.vector, dict) else None
        if vector is not None and query.dense is not None:
            similarity = cosine(query.dense, vector)
        ranked.append(passage_of(str(point.id), point.payload or {}, point.score, similarity))
    return ranked


def _filter(conditions: Sequence[Where]) -> models.Filter:
    must: list[Any] = []
    must_not: list[Any] = []
    for each in conditions:
        condition = models.FieldCondition(key=each.field, match=models.MatchAny(any=list(each.values)))
        (must_not if each.negated else must).append(condition)
    return models.Filter(must=must, must_not=must_not)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except UnexpectedResponse as error:
        if error.status_code in (401, 403):
            raise Misconfigured("Qdrant refuses the key: set CAIRN_QDRANT_API_KEY") from error
        if error.status_code is not None and 400 <= error.status_code < 500 and error.status_code not in (408, 429):
            raise Misconfigured(f"Qdrant refuses the request: {error}") from error
        raise VectorStoreUnavailable(f"Qdrant: {error}") from error
    except (ResponseHandlingException, ApiException, httpx.HTTPError, OSError) as error:
        raise VectorStoreUnavailable(f"Qdrant can't be reached: {error}") from error
