"""cairn:retriever -> retrieve -> cairn:grader"""

from __future__ import annotations

from services.retriever.decision import (
    EMBEDDER_DOWN,
    NO_EMBEDDER,
    NO_VECTORS,
    Ranking,
    RetrievalPolicy,
    choose,
    search_header,
    went_by_words_alone,
)
from shared.clients.embeddings import Embedder, Vectors
from shared.clients.index import PassageIndex, QueryVectors, Rights, encode_query
from shared.contracts import Grade, Retrieve
from shared.errors import EmbedderUnavailable


async def retrieve(msg: Retrieve, *, index: PassageIndex, embedder: Embedder | None, policy: RetrievalPolicy) -> Grade:
    """Search with all queries at once, by meaning and by words, within the asker's rights.

    Without an embedder words alone find, and the outcome says so. A job for the web only searches nothing here.
    """
    rankings: list[Ranking] = []
    degraded: tuple[str, ...] = ()
    if msg.asked.web != "only":
        vectors, degraded = await _embed(msg, embedder)
        rankings += await index.search(
            msg.asked.collection or policy.collection,
            _queries(msg, vectors),
            Rights.of(msg.header.principal),
            msg.asked.filters,
            policy.candidates,
        )
        if vectors is not None and went_by_words_alone(rankings):
            degraded = (NO_VECTORS,)
    passages = choose(rankings, policy, principal=msg.header.principal, top_k=msg.asked.top_k)
    return Grade(
        header=search_header(msg, passages, index_version=index.version, degraded=degraded),
        asked=msg.asked,
        route=msg.route,
        queries=msg.queries,
        passages=passages,
        evidence=msg.evidence,
    )


async def _embed(msg: Retrieve, embedder: Embedder | None) -> tuple[Vectors | None, tuple[str, ...]]:
    """Vectors of the queries and, last, of the HyDE passage; or none, and why."""
    if embedder is None:
        return None, (NO_EMBEDDER,)
    texts = [*msg.queries, *([msg.hyde] if msg.hyde else [])]
    try:
        return await embedder.embed_questions(texts), ()
    except EmbedderUnavailable:
        return None, (EMBEDDER_DOWN,)


def _queries(msg: Retrieve, vectors: Vectors | None) -> list[QueryVectors]:
    language = msg.header.language
    queries = [
        QueryVectors(number, encode_query(query, language), vectors[number] if vectors is not None else None)
        for number, query in enumerate(msg.queries)
    ]
    if msg.hyde and vectors is not None:
        # A made-up answer stands for the question as a whole; its words are guesses and search nothing.
        queries.append(QueryVectors(0, None, vectors[-1], hypothetical=True))
    return queries
