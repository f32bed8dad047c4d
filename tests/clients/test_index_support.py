"""What the tests of the index share: an embedder that needs no model, and a short way to documents and searches."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient

from shared.clients.embedder import Vectors
from shared.clients.index import (
    PassageIndex,
    PassageVectors,
    Place,
    QueryVectors,
    Rights,
    edition_of,
    encode_passage,
    encode_query,
    passage_text,
)
from shared.clients.index.edge import EdgeIndex
from shared.clients.index.server import QdrantIndex
from shared.contracts import Document, Filters, Passage, PassageDraft, Principal

DIMENSION = 64


@contextmanager
def directory() -> Iterator[Path]:
    """A directory in memory where there is one: the engine syncs its files, 0.1 s each on a slow disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


class BagOfWords:
    """Texts with words in common lie near each other. Counts what it was asked; raises `failure` if there is one."""

    fingerprint = "bag-of-words"
    dimension = DIMENSION

    def __init__(self) -> None:
        self.embedded: list[str] = []
        self.asked = 0
        self.failure: Exception | None = None

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        self.embedded += texts
        return np.stack([vector_of(text) for text in texts])

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return await self.embed_questions(texts)

    async def aclose(self) -> None:
        pass


def vector_of(text: str) -> Vectors:
    vector = np.full(DIMENSION, 0.01, dtype=np.float32)
    for word in re.findall(r"\w+", text.lower()):
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % DIMENSION] += 1
    return vector


def document(document_id: str = "guide", *, content_hash: str = "v1", **fields: object) -> Document:
    known = {"title": "", "uri": f"file:///{document_id}", "language": "en"}
    return Document.model_validate({"document_id": document_id, "content_hash": content_hash} | known | fields)


def drafts(*texts: str) -> tuple[PassageDraft, ...]:
    return tuple(PassageDraft(ordinal=number, text=text) for number, text in enumerate(texts))


def encoded(owner: Document, passages: Sequence[PassageDraft], *, dense: bool = True) -> list[PassageVectors]:
    return [
        PassageVectors(
            draft,
            encode_passage(passage_text(owner, draft), owner.language),
            vector_of(passage_text(owner, draft)) if dense else None,
        )
        for draft in passages
    ]


async def put(
    index: PassageIndex,
    collection: str,
    owner: Document,
    *texts: str,
    dense: bool = True,
    submitted_at: float = 0.0,
) -> str:
    """Put a whole document; answers its edition."""
    passages = encoded(owner, drafts(*texts), dense=dense)
    await index.ensure(collection, DIMENSION if dense else None)
    await index.put(collection, owner, len(passages), passages, submitted_at=submitted_at)
    return edition_of(owner, len(passages))


def place(collection: str, document_id: str = "guide", *, tenant: str = "public") -> Place:
    return Place(collection, tenant, document_id)


def query(text: str, *, number: int = 0, dense: bool = True, words: bool = True, language: str = "en") -> QueryVectors:
    return QueryVectors(number, encode_query(text, language) if words else None, vector_of(text) if dense else None)


async def search(
    index: PassageIndex,
    collection: str,
    *queries: QueryVectors,
    principal: Principal | None = None,
    filters: Filters | None = None,
    limit: int = 10,
) -> list[list[Passage]]:
    rights = Rights.of(principal or Principal())
    rankings = await index.search(collection, queries, rights, filters or Filters(), limit)
    return [list(ranking.passages) for ranking in rankings]


def texts_of(ranking: Sequence[Passage]) -> list[str]:
    return [passage.text for passage in ranking]


ENGINES = ("edge", "local", "server")
SERVER_URL = os.environ.get("CAIRN_QDRANT_URL", "")


class Store:
    """One store that can be opened again with another embedder; collections have names of their own."""

    def __init__(self, engine: str, path: Path) -> None:
        self.engine = engine
        self.path = path
        self.collection = f"test-{secrets.token_hex(6)}"
        where = SERVER_URL if engine == "server" else ":memory:"
        self.client = AsyncQdrantClient(where, check_compatibility=False) if engine != "edge" else None
        self.edge: EdgeIndex | None = None

    async def open(self, fingerprint: str | None = "bag-of-words") -> PassageIndex:
        if self.client is not None:
            return QdrantIndex(self.client, fingerprint=fingerprint)
        if self.edge is not None:
            await self.edge.aclose()
        self.edge = EdgeIndex(self.path, fingerprint=fingerprint)
        return self.edge

    async def aclose(self) -> None:
        if self.edge is not None:
            await self.edge.aclose()
        if self.client is not None:
            if self.engine == "server":
                for made in (await self.client.get_collections()).collections:
                    if made.name.startswith(self.collection):
                        await self.client.delete_collection(made.name)
            await self.client.close()


@asynccontextmanager
async def opened_store(engine: str) -> AsyncIterator[Store]:
    """A store of this kind; the test is skipped where CAIRN_QDRANT_URL names no server."""
    if engine == "server" and not SERVER_URL:
        pytest.skip("CAIRN_QDRANT_URL names no Qdrant server")
    with directory() as path:
        store = Store(engine, path)
        yield store
        await store.aclose()
