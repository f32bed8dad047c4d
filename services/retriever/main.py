"""The retriever: searches the index, and is the only one that writes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qdrant_client import AsyncQdrantClient

from services.retriever.handler import retrieve
from services.retriever.ingest import ingest
from services.retriever.settings import RetrievalPolicy
from shared.clients.embeddings import Embedder, open_embedder
from shared.clients.index import PassageIndex
from shared.clients.index.edge import EdgeIndex
from shared.clients.index.server import QdrantIndex
from shared.runtime.stage import Inbox, Stage
from shared.runtime.worker import run_worker
from shared.settings import EmbedSettings, HomeSettings, IndexSettings

WORDS_ALONE = "words-alone"
"""Fingerprint of an index without vectors."""


def open_index(settings: IndexSettings, home: HomeSettings, embedder: Embedder | None) -> PassageIndex:
    """The configured server, or the embedded engine under the data directory."""
    fingerprint = embedder.fingerprint if embedder is not None else WORDS_ALONE
    dimension = embedder.dimension if embedder is not None else None
    if settings.qdrant_url is not None:
        key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
        client = AsyncQdrantClient(settings.qdrant_url, api_key=key, timeout=30)
        return QdrantIndex(client, fingerprint=fingerprint, dimension=dimension)
    root = settings.qdrant_path or home.data_dir / "index"
    return EdgeIndex(root, fingerprint=fingerprint, dimension=dimension)


@asynccontextmanager
async def open_stage() -> AsyncIterator[Stage]:
    """The retriever with its embedder and index, closed again afterwards."""
    home, where = HomeSettings(), IndexSettings()
    embedder = await open_embedder(EmbedSettings(), home.data_dir)
    index = open_index(where, home, embedder)
    version = embedder.fingerprint if embedder is not None else WORDS_ALONE
    searching = Inbox.of(
        retrieve, max_workers=8, index=index, embedder=embedder, policy=RetrievalPolicy(), index_version=version
    )
    # One part after the other: the pool embeds each in parallel anyway, and the order shows as progress.
    writing = Inbox.of(ingest, max_workers=1, index=index, embedder=embedder, default_collection=where.collection)
    try:
        yield Stage("retriever", [searching, writing])
    finally:
        await index.aclose()
        if embedder is not None:
            await embedder.aclose()


def main() -> None:
    run_worker(open_stage, "retriever")


if __name__ == "__main__":
    main()
