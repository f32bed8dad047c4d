"""What QdrantIndex sends to a server, and how it sorts the server's refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient

from shared.clients.index import open_index
from shared.clients.index.lexical import LEXICAL_VERSION
from shared.clients.index.manifest import FORMAT, Manifest
from shared.clients.index.server import QdrantIndex
from shared.clients.index.server_collections import Storage, config_of
from shared.contracts import Filters, Principal
from shared.errors import CairnError, Misconfigured, VectorStoreUnavailable
from shared.settings import IndexSettings
from tests.clients.test_index_support import DIMENSION, document, put, query, search, texts_of

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")

MANIFEST = {"fingerprint": "bag-of-words", "dimension": DIMENSION, "lexical": LEXICAL_VERSION, "format": FORMAT}


class Server:
    """Answers like a server with one collection; keeps what it was asked."""

    def __init__(self, *, exists: bool = True, refuse: Callable[[], httpx.Response] | None = None) -> None:
        self.exists = exists
        self.refuse = refuse
        self.asked: list[tuple[str, str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body: Any = json.loads(request.content) if request.content else None
        self.asked.append((request.method, request.url.path, body))
        if self.refuse is not None:
            return self.refuse()
        path = request.url.path
        if request.method == "PUT" and path.count("/") == 2:
            self.exists = True
            return self._result(True)
        if path in ("/collections", "/collections/aliases"):
            made = [{"name": "docs--1"}] if self.exists else []
            return self._result(True if path.endswith("aliases") else {"collections": made})
        if request.method == "GET":
            return self._result(self._collection()) if self.exists else httpx.Response(404)
        if path.endswith("/query/batch"):
            return self._result([{"points": []} for _ in body["searches"]])
        return self._result({"operation_id": 1, "status": "completed"})

    def sent(self, method: str, path: str) -> list[Any]:
        return [body for asked, where, body in self.asked if (asked, where) == (method, path)]

    def _result(self, result: object) -> httpx.Response:
        return httpx.Response(200, json={"result": result, "status": "ok", "time": 0.0})

    def _collection(self) -> dict[str, Any]:
        return {
            "status": "green",
            "optimizer_status": "ok",
            "segments_count": 1,
            "payload_schema": {},
            "config": {
                "params": {},
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                },
                "metadata": {"cairn": MANIFEST},
            },
        }


def index_on(server: Callable[[httpx.Request], httpx.Response]) -> QdrantIndex:
    client = AsyncQdrantClient(
        "http://qdrant.test:6333", transport=httpx.MockTransport(server), check_compatibility=False
    )
    return QdrantIndex(client, fingerprint="bag-of-words")


async def test_the_rights_are_in_every_branch_of_a_search() -> None:
    server = Server()
    principal = Principal(tenant="acme", roles=("hr",), region="eu")
    index = index_on(server)
    await search(
        index, "docs", query("one"), query("two"), principal=principal, filters=Filters(languages=("fr",)), limit=7
    )
    [batch] = server.sent("POST", "/collections/docs/points/query/batch")
    rights = [
        {"key": "tenant", "match": {"any": ["acme"]}},
        {"key": "acl", "match": {"any": ["public", "hr"]}},
        {"key": "region", "match": {"any": ["*", "eu"]}},
        {"key": "state", "match": {"any": ["live"]}},
    ]
    assert [one["using"] for one in batch["searches"]] == ["dense", "lexical"] * 2
    for one in batch["searches"]:
        assert one["limit"] == 7
        *both, valid_from, valid_to = one["filter"]["must"]
        assert both == [*rights, {"key": "language", "match": {"any": ["fr"]}}]
        assert (valid_from["key"], *valid_from["range"]) == ("valid_from_s", "lte")
        assert (valid_to["key"], *valid_to["range"]) == ("valid_to_s", "gte")
        if one["using"] == "lexical":
            assert one["params"]["idf"]["corpus"]["must"] == rights
    await index.aclose()


async def test_a_collection_is_made_with_its_manifest_and_payload_indexes() -> None:
    server = Server(exists=False)
    index = index_on(server)
    await put(index, "docs", document(), "tent")
    [made] = server.sent("PUT", "/collections/docs--1")
    assert made == {
        "vectors": {"dense": {"size": DIMENSION, "distance": "Cosine"}},
        "sparse_vectors": {"lexical": {"modifier": "idf"}},
        "metadata": {"cairn": MANIFEST},
    }
    indexed = {body["field_name"]: body["field_schema"] for body in server.sent("PUT", "/collections/docs--1/index")}
    assert {"tenant", "acl", "region", "document_id", "language"} <= indexed.keys()
    assert indexed["tenant"]["is_tenant"] is True
    assert indexed["valid_to_s"] == "float"
    assert server.sent("POST", "/collections/aliases") == [
        {"actions": [{"create_alias": {"collection_name": "docs--1", "alias_name": "docs"}}]}
    ]
    await index.aclose()


async def test_two_retrievers_may_make_a_collection_at_once() -> None:
    server = Server(exists=False)

    def conflict(request: httpx.Request) -> httpx.Response:
        reply = server(request)
        return httpx.Response(409) if (request.method, request.url.path) == ("PUT", "/collections/docs--1") else reply

    index = index_on(conflict)
    await index.ensure("docs", DIMENSION)
    await index.aclose()


def _unreachable() -> httpx.Response:
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize(
    ("refuse", "error", "told"),
    [
        (lambda: httpx.Response(401), Misconfigured, "CAIRN_QDRANT_API_KEY"),
        (lambda: httpx.Response(403), Misconfigured, "CAIRN_QDRANT_API_KEY"),
        (lambda: httpx.Response(400, text="what?"), Misconfigured, "CAIRN_QDRANT_URL"),
        (lambda: httpx.Response(503), VectorStoreUnavailable, "refused for now"),
        (lambda: httpx.Response(429, headers={"Retry-After": "3"}), VectorStoreUnavailable, "asks to wait"),
        (_unreachable, VectorStoreUnavailable, "can't be reached"),
    ],
)
async def test_refusals_are_sorted(refuse: Callable[[], httpx.Response], error: type[CairnError], told: str) -> None:
    index = index_on(Server(refuse=refuse))
    with pytest.raises(error, match=told) as caught:
        await search(index, "docs", query("tent"))
    assert caught.value.__cause__ is not None
    if told == "asks to wait":
        assert isinstance(caught.value, VectorStoreUnavailable)
        assert caught.value.retry_after_s == 3.0
    await index.aclose()


async def test_a_collection_that_somebody_removed_is_made_again_at_the_next_try() -> None:
    server = Server()
    index = index_on(server)
    await index.ensure("docs", DIMENSION)
    server.refuse = lambda: httpx.Response(404)
    with pytest.raises(VectorStoreUnavailable, match="gone"):
        await index.put("docs", document(), 0, [], submitted_at=0.0)
    server.refuse, server.exists = None, False
    await index.ensure("docs", DIMENSION)
    assert len(server.sent("PUT", "/collections/docs--1")) == 1
    await index.aclose()


async def test_the_settings_choose_the_server() -> None:
    settings = IndexSettings(qdrant_url="https://qdrant.test:6333", qdrant_api_key=SecretStr("k"))
    index = open_index(settings, data_dir=None, fingerprint=None)  # type: ignore[arg-type]
    assert isinstance(index, QdrantIndex)
    assert index.version == f"lexical+{LEXICAL_VERSION}"
    await index.aclose()
    with pytest.raises(Misconfigured, match="CAIRN_QDRANT_URL"):
        QdrantIndex.at(IndexSettings(qdrant_url="http://host:port"), fingerprint=None)


async def test_a_name_is_switched_to_another_collection_at_once() -> None:
    client = AsyncQdrantClient(":memory:")
    index = QdrantIndex(client, fingerprint="bag-of-words")
    await put(index, "docs", document(), "tent old")
    await put(index, "next", document(), "tent new")
    with pytest.raises(Misconfigured, match="no collection 'nothing'"):
        await index.switch("docs", "nothing")
    with pytest.raises(Misconfigured, match="is a collection and no alias"):
        await index.switch("docs--1", "next")

    assert await index.switch("docs", "next") == "docs--1"
    for found in await search(index, "docs", query("tent")):
        assert texts_of(found) == ["tent new"]
    assert await index.info("next") is None  # the name is free for the next time
    await put(index, "next", document(), "tent newest")
    assert {one.name for one in (await client.get_collections()).collections} == {"docs--1", "next--1", "next--2"}

    assert await index.switch("docs", "docs--1") == "next--1"
    for found in await search(index, "docs", query("tent")):
        assert texts_of(found) == ["tent old"]
    await client.close()


@pytest.mark.parametrize(
    ("settings", "quantization"),
    [
        ({"qdrant_quantization": "scalar"}, {"scalar": {"type": "int8", "quantile": 0.99, "always_ram": True}}),
        ({"qdrant_quantization": "binary"}, {"binary": {"always_ram": True}}),
    ],
)
def test_storage_is_a_matter_of_settings(settings: dict[str, str], quantization: dict[str, Any]) -> None:
    chosen = IndexSettings.model_validate({"qdrant_on_disk": True, **settings})
    config = config_of(Manifest("bag", 3), Storage(chosen.qdrant_quantization, on_disk=chosen.qdrant_on_disk))
    assert config["quantization_config"].model_dump(exclude_none=True, mode="json") == quantization
    assert config["vectors_config"]["dense"].on_disk is True
    assert config["on_disk_payload"] is True
