"""cairn:retriever -> retrieve -> cairn:grader"""

from __future__ import annotations

from services.retriever.decision import RankedList, fold_duplicates, found, fuse
from services.retriever.settings import RetrievalPolicy
from shared.clients.embeddings import Embedder
from shared.clients.index import PassageIndex, SearchQuery, lexical
from shared.contracts import Grade, Passage, Retrieve
from shared.errors import EmbedderUnavailable

LEXICAL_ONLY = "embedder unavailable: searched by words alone"


async def retrieve(
    msg: Retrieve, *, index: PassageIndex, embedder: Embedder | None, policy: RetrievalPolicy, index_version: str
) -> Grade:
    """Search with all queries at once, by meaning and by words, within the asker's rights."""
    passages: list[Passage] = []
    degraded: tuple[str, ...] = ()
    if msg.asked.web != "only":
        texts = [*msg.queries, *([msg.hyde] if msg.hyde else [])]
        vectors: list[list[float]] | None = None
        try:
            vectors = await embedder.embed_questions(texts) if embedder is not None else None
        except EmbedderUnavailable:  # promise 3: degrade, don't fail
            degraded = (LEXICAL_ONLY,)
        passages = await _search(msg, texts, vectors, index, policy)
    return Grade(
        header=found(msg, passages, index_version=index_version, degraded=degraded),
        asked=msg.asked,
        route=msg.route,
        queries=msg.queries,
        passages=tuple(passages),
        evidence=msg.evidence,
    )


async def _search(
    msg: Retrieve, texts: list[str], vectors: list[list[float]] | None, index: PassageIndex, policy: RetrievalPolicy
) -> list[Passage]:
    reader, asked = msg.header.principal, msg.asked
    queries = [
        SearchQuery(lexical.of_query(text, msg.header.language), vectors[number] if vectors is not None else None)
        for number, text in enumerate(texts)
    ]
    assert asked.collection is not None, "the gateway names the collection"
    arms = await index.search(asked.collection, queries, reader, asked.filters, limit=policy.candidates)
    # A HyDE passage belongs to the question as a whole, which the first query stands for.
    lists = [
        RankedList(number if number < len(msg.queries) else 0, arm)
        for number, query in enumerate(arms)
        for arm in query
    ]
    readable = [passage for passage in fuse(lists, policy.fusion) if reader.may_read(passage)]
    return fold_duplicates(readable, policy.duplicate_overlap)[: asked.top_k]
