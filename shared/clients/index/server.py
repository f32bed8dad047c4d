"""A Qdrant server, shared by any number of processes (or qdrant-client's local mode, in tests).

What a collection was built with stands in its metadata, which Qdrant keeps since 1.16. Since 1.19 the rarity of words
is counted among the passages the asker may read; older servers count all of the collection.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from shared.clients.embedder import Vector
from shared.clients.index.conditions import NOT_GONE, AnyOf, Condition, Place, Rights
from shared.clients.index.lexical import LEXICAL_VERSION
from shared.clients.index.manifest import Manifest, check_put, check_search, read_manifest
from shared.clients.index.points import DENSE, State, Stored, grave_of, standing_of
from shared.clients.index.searching import Look, Scored, search_by
from shared.clients.index.server_collections import METADATA, PAYLOAD_INDEXES, Storage, config_of
from shared.clients.index.server_requests import filter_of, point_of, request_of
from shared.clients.index.types import CollectionInfo, PassageVectors, QueryVectors
from shared.contracts import Document, Filters
from shared.errors import Misconfigured, VectorStoreUnavailable
from shared.passages import Ranking
from shared.settings import IndexSettings

_TIMEOUT_S: Final = 10
_ALL_VALUES: Final = 10_000_000
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class QdrantIndex:
    """`PassageIndex` on a server."""

    def __init__(self, client: AsyncQdrantClient, *, fingerprint: str | None, storage: Storage | None = None) -> None:
        self._client = client
        self._fingerprint = fingerprint
        self._storage = storage or Storage()
        self._manifests: dict[str, Manifest] = {}

    @classmethod
    def at(cls, settings: IndexSettings, *, fingerprint: str | None) -> QdrantIndex:
        """The server of CAIRN_QDRANT_URL. Raises Misconfigured where that is no URL; asks the server nothing yet."""
        key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key is not None else None
        try:
            client = AsyncQdrantClient(
                url=settings.qdrant_url, api_key=key, timeout=_TIMEOUT_S, check_compatibility=False
            )
        except ValueError as error:
            raise Misconfigured(f"CAIRN_QDRANT_URL is no URL of a Qdrant server: {error}") from error
        storage = Storage(settings.qdrant_quantization, on_disk=settings.qdrant_on_disk)
        return cls(client, fingerprint=fingerprint, storage=storage)

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
    ) -> list[Ranking]:
        manifest = await self._find(collection)
        if manifest is None:
            return []
        check_search(collection, manifest, self._fingerprint, queries)

        async def run(looks: list[Look]) -> list[list[Scored]]:
            with self._translated(collection):
                replies = await self._client.query_batch_points(collection, [request_of(look) for look in looks])
            return [[Scored(str(one.id), one.score, one.payload) for one in reply.points] for reply in replies]

        return await search_by(run, queries, rights, filters, limit, has_dense=manifest.dimension is not None)

    async def vectors(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, Vector]:
        manifest = await self._find(collection)
        if not passage_ids or manifest is None or manifest.dimension is None:
            return {}
        with self._translated(collection):
            records = await self._client.retrieve(
                collection, list(passage_ids), with_payload=False, with_vectors=[DENSE]
            )
        found = {str(record.id): record.vector for record in records if isinstance(record.vector, dict)}
        return {name: np.asarray(vector[DENSE], dtype=np.float32) for name, vector in found.items() if DENSE in vector}

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
        points = [point_of(document, passage_total, passage, how) for passage in passages]
        with self._translated(collection):
            await self._client.upsert(collection, points, wait=True)

    async def digests(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, str]:
        if not passage_ids or await self._find(collection) is None:
            return {}
        with self._translated(collection):
            records = await self._client.retrieve(collection, list(passage_ids), with_payload=["digest"])
        return {str(record.id): (record.payload or {}).get("digest", "") for record in records}

    async def count(self, place: Place, *also: Condition) -> int:
        return await self._count(place.collection, filter_of((*place.conditions, *also)))

    async def publish(self, place: Place, edition: str, document: Document, *, submitted_at: float) -> None:
        payload = {"state": "live", **standing_of(document, submitted_at)}
        passages = models.FilterSelector(filter=filter_of((*place.conditions, AnyOf("edition", (edition,)))))
        with self._translated(place.collection):
            await self._client.set_payload(place.collection, payload, passages, wait=True)

    async def delete(self, place: Place, *also: Condition) -> int:
        doomed = filter_of((*place.conditions, *also))
        if count := await self._count(place.collection, doomed):
            with self._translated(place.collection):
                await self._client.delete(place.collection, models.FilterSelector(filter=doomed), wait=True)
        return count

    async def bury(self, place: Place, *, submitted_at: float) -> None:
        mark, payload = grave_of(place, submitted_at)
        if await self._find(place.collection) is not None:
            with self._translated(place.collection):
                point = models.PointStruct(id=mark, vector={}, payload=payload)
                await self._client.upsert(place.collection, [point], wait=True)

    async def documents(self, collection: str, tenant: str) -> list[str]:
        if await self._find(collection) is None:
            return []
        wanted = filter_of((*Place(collection, tenant).conditions, NOT_GONE))
        with self._translated(collection):
            found = await self._client.facet(
                collection, "document_id", facet_filter=wanted, limit=_ALL_VALUES, exact=True
            )
        return sorted(str(hit.value) for hit in found.hits)

    async def info(self, collection: str) -> CollectionInfo | None:
        manifest = await self._find(collection)
        if manifest is None:
            return None
        passages = await self._count(collection, filter_of((NOT_GONE,)))
        return CollectionInfo(passages, manifest.fingerprint, manifest.dimension, manifest.lexical)

    async def aclose(self) -> None:
        await self._client.close()

    async def _find(self, collection: str) -> Manifest | None:
        """The collection's manifest, read once; None where there is no such collection."""
        if collection not in self._manifests:
            with self._translated(collection):
                try:
                    # Not collection_exists: the name is an alias.
                    facts = (await self._client.get_collection(collection)).config.metadata or {}
                except UnexpectedResponse as error:
                    if error.status_code != _NOT_FOUND:
                        raise
                    return None
                except ValueError:  # the local mode's way to say so
                    return None
            self._manifests[collection] = read_manifest(collection, facts.get(METADATA))
        return self._manifests[collection]

    async def _create(self, collection: str, manifest: Manifest) -> None:
        """Make `collection--N` and the alias `collection` for it, which can be switched to another one later."""
        with self._translated(collection):
            names = {one.name for one in (await self._client.get_collections()).collections}
            number = next(n for n in itertools.count(1) if f"{collection}--{n}" not in names)
            target = f"{collection}--{number}"
            try:
                await self._client.create_collection(target, **config_of(manifest, self._storage))
            except UnexpectedResponse as error:
                if error.status_code != _CONFLICT:  # another retriever made it meanwhile
                    raise
            for field, schema in PAYLOAD_INDEXES.items():
                await self._client.create_payload_index(target, field, field_schema=schema)
            await self._client.update_collection_aliases([_alias(collection, target)])

    async def switch(self, collection: str, target: str) -> str | None:
        """Let the name `collection` mean what `target` means, from one moment to the next.

        `target` is another name or a collection behind one; a name is given up. Answers the collection that
        `collection` has meant so far, None if it meant none. Raises Misconfigured where there is nothing to switch to.
        """
        with self._translated(collection):
            aliases = {one.alias_name: one.collection_name for one in (await self._client.get_aliases()).aliases}
            names = {one.name for one in (await self._client.get_collections()).collections}
            behind = aliases.get(target, target)
            if behind not in names or collection in names:
                raise Misconfigured(
                    f"there is no collection {target!r} to switch to"
                    if behind not in names
                    else f"{collection!r} is a collection and no alias: ingest into a new name, and ask that one"
                )
            dropped = [name for name in (collection, target) if name in aliases]
            await self._client.update_collection_aliases([*map(_no_alias, dropped), _alias(collection, behind)])
        self._manifests.clear()
        return aliases.get(collection)

    async def _count(self, collection: str, wanted: models.Filter) -> int:
        if await self._find(collection) is None:
            return 0
        with self._translated(collection):
            return (await self._client.count(collection, wanted, exact=True)).count

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


def _alias(name: str, collection: str) -> models.CreateAliasOperation:
    return models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=collection, alias_name=name))


def _no_alias(name: str) -> models.DeleteAliasOperation:
    return models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
