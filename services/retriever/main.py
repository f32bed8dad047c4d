"""The retriever: searches the index, and is the only one that writes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.retriever.handler import retrieve
from services.retriever.ingest import ingest
from services.retriever.settings import RetrieverSettings
from shared.clients.embeddings import open_embedder
from shared.clients.index import open_index
from shared.clients.languages import LanguageMeans
from shared.clients.rerank import open_reranker
from shared.runtime.common import Common
from shared.runtime.stage import Inbox, Stage
from shared.runtime.steps import Steps
from shared.runtime.worker import run_worker
from shared.settings import EmbedSettings, HomeSettings, IndexSettings, RerankSettings


@asynccontextmanager
async def open_stage(common: Common) -> AsyncIterator[Stage]:
    """The retriever with its embedder and index, closed again afterwards."""
    home, where = HomeSettings(), IndexSettings()
    embedder = open_embedder(EmbedSettings(), home.data_dir)
    index = open_index(where, home.data_dir, fingerprint=embedder.fingerprint if embedder is not None else None)
    languages = LanguageMeans(embedder) if embedder is not None else None
    reranker = open_reranker(RerankSettings())

    async def measure_languages(_: Steps) -> None:
        # Now rather than at the first question, which would wait a second for it.
        if languages is not None:
            await languages.get()

    searching = Inbox.of(
        retrieve,
        max_workers=8,
        index=index,
        embedder=embedder,
        policy=RetrieverSettings().policy(where.collection),
        languages=languages,
        reranker=reranker,
    )
    # One part after the other: the pool embeds each in parallel anyway, and the order shows as progress.
    writing = Inbox.of(ingest, max_workers=1, index=index, embedder=embedder, default_collection=where.collection)
    try:
        yield Stage("retriever", [searching, writing], chores=[measure_languages])
    finally:
        await index.aclose()
        if reranker is not None:
            await reranker.aclose()
        if embedder is not None:
            await embedder.aclose()


def main() -> None:
    run_worker(open_stage, "retriever")


if __name__ == "__main__":
    main()
