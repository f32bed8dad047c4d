"""cairn:retriever -> retrieve -> cairn:grader"""

from __future__ import annotations

from services.retriever.decision import NO_VECTORS, RetrievalPolicy, choose, search_header, went_by_words_alone
from services.retriever.searching import Scope, encode, rerank
from shared.clients.embedder import Embedder
from shared.clients.index import PassageIndex
from shared.clients.languages import LanguageMeans
from shared.clients.rerank import Reranker
from shared.contracts import Grade, Passage, Retrieve


async def retrieve(
    msg: Retrieve,
    *,
    index: PassageIndex,
    embedder: Embedder | None,
    policy: RetrievalPolicy,
    languages: LanguageMeans | None = None,
    reranker: Reranker | None = None,
) -> Grade:
    """Search with all queries at once, by meaning and by words, within the asker's rights.

    Without an embedder words alone find, and the outcome says so. A job for the web only searches nothing here.
    """
    passages: tuple[Passage, ...] = ()
    degraded: tuple[str, ...] = ()
    if msg.asked.web != "only":
        wanted = policy.wanted(msg.asked.top_k, msg.route)
        queries, degraded = await encode(msg, embedder, languages)
        scope = Scope(index, msg, policy)
        rankings = await scope.search(queries, policy.candidates)
        # Without an embedder, nothing more is asked of it or of what it made.
        best = choose(rankings, policy, header=msg.header, top_k=0 if degraded else policy.seeds)
        means = await languages.get() if languages is not None and best else {}
        neighbours = await scope.neighbours(best, means) if best else []
        limit = wanted if reranker is None else max(wanted, policy.rerank_candidates)
        passages = choose(rankings, policy, header=msg.header, top_k=limit, neighbours=neighbours)
        passages = await scope.compared(passages, queries)
        if not degraded and went_by_words_alone(rankings):
            degraded = (NO_VECTORS,)
        if reranker is not None and passages:
            passages, failed = await rerank(msg, passages, reranker, top_k=wanted)
            degraded += failed
    return Grade(
        header=search_header(msg, passages, index_version=index.version, degraded=degraded),
        asked=msg.asked,
        route=msg.route,
        queries=msg.queries,
        passages=passages,
        evidence=msg.evidence,
    )
