"""A Qdrant server, shared by any number of processes (or qdrant-client's local mode, in tests).

What a collection was built with stands in its metadata, which Qdrant keeps since 1.16. Since 1.19 the rarity of words
is counted among the passages the asker may read; older servers count all of the collection.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from shared.clients.index.lexical import LEXICAL_VERSION, SparseVector
from shared.clients.index.manifest import Manifest, check_put, check_search, read_manifest
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
from shared.errors import Misconfigured, VectorStoreUnavailable

_TIMEOUT_S: Final = 10
_METADATA: Final = "cairn"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class QdrantIndex:
    """`PassageIndex` on a server."""

    def __init__(self, client: AsyncQdrantClient, *, fingerprint: str | None) -> None:
        self._client = client
        self._fingerprint = fingerprint
        self._manifests: dict[str, Manifest] = {}

    @classmethod
    def at(cls, url: str, api_key: SecretStr | None, *, fingerprint: str | None) -> QdrantIndex:
        """The server at this URL. Raises Misconfigured for something that is no URL; asks the server nothing yet."""
        key = api_key.get_secret_value() if api_key is not None else None
        try:
            client = AsyncQdrantClient(url=url, api_key=key, timeout=_TIMEOUT_S, check_compatibility=False)
        except ValueError as error:
            raise Misconfigured(f"CAIRN_QDRANT_URL is no URL of a Qdrant server: {error}") from error
        return cls(client, fingerprint=fingerprint)

    @property
    def version(self) -> str:
        return f"{self._fingerprint or 'lexical'}+{LEXICAL_VERSION}"

    async def ensure(self, collection: str, dimension: int | None) -> None:
        wanted = Manifest(self._fingerprint if dimension is not None else None, dimension)
        found = await self._find(collection)
        if found is None:
            await self._create(collection, wanted)
            found = await self._find(collection)
            if found is None:
                raise VectorStoreUnavailable(f"Qdrant lost collection {collection!r} right after making it")
        check_put(collection, found, wanted)

    async def search(
        self, collection: str, queries: Sequence[QueryVectors], rights: Rights, filters: Filters, limit: int
    ) -> list[list[Passage]]:
        manifest = await self._find(collection)
        if manifest is None:
            return []
        check_search(collection, manifest, self._fingerprint, queries)

        async def run(looks: list[Look]) -> list[list[Scored]]:
            with self._translated(collection):
                replies = await self._client.query_batch_points(collection, [_request(look) for look in looks])
            return [[Scored(str(one.id), one.score, one.payload) for one in reply.points] for reply in replies]

        return await search_by(run, queries, rights, filters, limit, has_dense=manifest.dimension is not None)

    async def put(
        self, collection: str, document: Document, passage_total: int, passages: Sequence[PassageVectors]
    ) -> None:
        now = round(time.time(), 3)
        points = [_point(document, passage_total, passage, now) for passage in passages]
        with self._translated(collection):
            await self._client.upsert(collection, points, wait=True)

    async def digests(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, str]:
        if not passage_ids or await self._find(collection) is None:
            return {}
        with self._translated(collection):
            records = await self._client.retrieve(collection, list(passage_ids), with_payload=["digest"])
        return {str(record.id): (record.payload or {}).get("digest", "") for record in records}

    async def count(self, collection: str, tenant: str, document_id: str, edition: str | None = None) -> int:
        return await self._count(collection, _filter(of_document(tenant, document_id, edition)))

    async def retire_others(self, collection: str, tenant: str, document_id: str, edition: str) -> int:
        return await self._delete(collection, _filter(of_document(tenant, document_id), but_not=("edition", edition)))

    async def delete_document(self, collection: str, tenant: str, document_id: str) -> int:
        return await self._delete(collection, _filter(of_document(tenant, document_id)))

    async def info(self, collection: str) -> CollectionInfo | None:
        manifest = await self._find(collection)
        if manifest is None:
            return None
        return CollectionInfo(
            await self._count(collection, None), manifest.fingerprint, manifest.dimension, manifest.lexical
        )

    async def aclose(self) -> None:
        await self._client.close()

    async def _find(self, collection: str) -> Manifest | None:
        """The collection's manifest, read once; None where there is no such collection."""
        if collection not in self._manifests:
            with self._translated(collection):
                if not await self._client.collection_exists(collection):
                    return None
                facts = (await self._client.get_collection(collection)).config.metadata or {}
            self._manifests[collection] = read_manifest(collection, facts.get(_METADATA))
        return self._manifests[collection]

    async def _create(self, collection: str, manifest: Manifest) -> None:
        dense = {}
        if manifest.dimension is not None:
            dense[DENSE] = models.VectorParams(size=manifest.dimension, distance=models.Distance.COSINE)
        with self._translated(collection):
            try:
                await self._client.create_collection(
                    collection,
                    vectors_config=dense,
                    sparse_vectors_config={LEXICAL: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                    metadata={_METADATA: manifest.to_json()},
                )
            except UnexpectedResponse as error:
                if error.status_code != _CONFLICT:  # another retriever made it meanwhile
                    raise
            for field in KEYWORD_FIELDS:
                schema = models.KeywordIndexParams(
                    type=models.KeywordIndexType.KEYWORD, is_tenant=True if field == "tenant" else None
                )
                await self._client.create_payload_index(collection, field, field_schema=schema)

    async def _count(self, collection: str, wanted: models.Filter | None) -> int:
        if await self._find(collection) is None:
            return 0
        with self._translated(collection):
            return (await self._client.count(collection, wanted, exact=True)).count

    async def _delete(self, collection: str, doomed: models.Filter) -> int:
        if count := await self._count(collection, doomed):
            with self._translated(collection):
                await self._client.delete(collection, models.FilterSelector(filter=doomed), wait=True)
        return count

    @contextmanager
    def _translated(self, collection: str) -> Iterator[None]:
        try:
            yield
        except UnexpectedResponse as error:
            raise self._refusal(collection, error) from error
        except ResourceExhaustedResponse as error:
            raise VectorStoreUnavailable("Qdrant asks to wait", retry_after_s=float(error.retry_after_s)) from error
        except (ApiException, QdrantException) as error:
            raise VectorStoreUnavailable(f"Qdrant can't be reached: {error}") from error

    def _refusal(self, collection: str, error: UnexpectedResponse) -> Exception:
        status = error.status_code or 500
        if status == _NOT_FOUND:
            # Removed by somebody: the next try looks again, and `ensure` makes it anew.
            self._manifests.pop(collection, None)
            return VectorStoreUnavailable(f"collection {collection!r} is gone from Qdrant")
        if status in (401, 403):
            return Misconfigured(f"Qdrant refused the key (HTTP {status}): set CAIRN_QDRANT_API_KEY")
        if status in (408, 429) or status >= 500:
            return VectorStoreUnavailable(f"Qdrant refused for now: {error}")
        return Misconfigured(
            f"Qdrant refused; check CAIRN_QDRANT_URL and the server's version (1.16 or newer): {error}"
        )


def _point(document: Document, passage_total: int, passage: PassageVectors, now: float) -> models.PointStruct:
    vectors: dict[str, Any] = {}
    if passage.lexical:
        vectors[LEXICAL] = _sparse(passage.lexical)
    if passage.dense is not None:
        vectors[DENSE] = passage.dense.tolist()
    payload = payload_of(document, passage_total, passage.draft, indexed_at=now)
    return models.PointStruct(id=passage_id_of(document, passage.draft.ordinal), vector=vectors, payload=payload)


def _request(look: Look) -> models.QueryRequest:
    vector = _sparse(look.vector) if isinstance(look.vector, SparseVector) else look.vector
    corpus = models.IdfCorpusParams(corpus=_filter(look.corpus)) if look.corpus else None
    return models.QueryRequest(
        query=vector,
        using=look.using,
        filter=_filter(look.must, among=look.among),
        params=models.SearchParams(idf=corpus) if corpus else None,
        limit=look.limit,
        with_payload=look.with_payload,
    )


def _sparse(vector: SparseVector) -> models.SparseVector:
    return models.SparseVector(indices=list(vector.indices), values=list(vector.values))


def _filter(
    must: Conditions, *, among: frozenset[str] | None = None, but_not: tuple[str, str] | None = None
) -> models.Filter:
    conditions: list[models.Condition] = [
        models.FieldCondition(key=field, match=models.MatchAny(any=list(values))) for field, values in must
    ]
    if among is not None:
        conditions.append(models.HasIdCondition(has_id=list(among)))
    excluded: list[models.Condition] = []
    if but_not is not None:
        field, value = but_not
        excluded.append(models.FieldCondition(key=field, match=models.MatchValue(value=value)))
    return models.Filter(must=conditions, must_not=excluded or None)
