"""The searches of one job: its queries encoded, the part of the index it may see, and its passages re-ranked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from services.retriever.decision import EMBEDDER_DOWN, NO_EMBEDDER, RERANKER_DOWN, RetrievalPolicy, reranked
from shared.clients.embedder import Embedder, Vector
from shared.clients.index import PassageIndex, QueryVectors, Rights, encode_query
from shared.clients.languages import LanguageMeans, baseline_of, baselines
from shared.clients.rerank import Reranker
from shared.contracts import Passage, Retrieve
from shared.errors import EmbedderUnavailable, InvalidModelReply, RerankerUnavailable
from shared.passages import Ranking

_NEIGHBOURS: Final = 20
"""Of each of the best passages. Half as many lose what feedback gains, twice as many add nothing (ADR 0008)."""
_SHARE_OF_TIME: Final = 0.3
"""Of the time to the deadline, what re-ranking may take at most."""


async def encode(
    msg: Retrieve, embedder: Embedder | None, languages: LanguageMeans | None
) -> tuple[list[QueryVectors], tuple[str, ...]]:
    """The queries and, last, the HyDE passage, embedded in one call; or the queries' words alone, and why."""
    words = [
        QueryVectors(number, encode_query(query, msg.header.language), None) for number, query in enumerate(msg.queries)
    ]
    if embedder is None:
        return words, (NO_EMBEDDER,)
    try:
        vectors = await embedder.embed_questions([*msg.queries, *([msg.hyde] if msg.hyde else [])])
    except EmbedderUnavailable:
        return words, (EMBEDDER_DOWN,)
    means = await languages.get() if languages is not None else {}
    queries = [
        QueryVectors(query.query, query.lexical, vector, baselines=baselines(vector, means))
        for query, vector in zip(words, vectors[: len(words)], strict=True)
    ]
    if msg.hyde:
        # A made-up answer stands for the question as a whole; its words are guesses and search nothing.
        queries.append(QueryVectors(0, None, vectors[-1], hypothetical=True, baselines=baselines(vectors[-1], means)))
    return queries, ()


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the index that a job searches: its collection, within its rights and filters."""

    index: PassageIndex
    msg: Retrieve
    policy: RetrievalPolicy

    @property
    def collection(self) -> str:
        return self.msg.collection or self.msg.asked.collection or self.policy.collection

    async def search(self, queries: Sequence[QueryVectors], limit: int) -> Sequence[Ranking]:
        """The best `limit` that each arm finds for each query."""
        rights = Rights.of(self.msg.header.principal)
        return await self.index.search(self.collection, queries, rights, self.msg.asked.filters, limit)

    async def neighbours(self, passages: Sequence[Passage], means: Mapping[str, Vector]) -> list[Ranking]:
        """For each passage that has a vector, what lies near it."""
        vectors = await self.index.vectors(self.collection, [passage.passage_id for passage in passages])
        seeds = [(passage, vectors[passage.passage_id]) for passage in passages if passage.passage_id in vectors]
        rankings = await self.search(
            [
                QueryVectors(passage.query, None, vector, hypothetical=True, baselines=baselines(vector, means))
                for passage, vector in seeds
            ],
            _NEIGHBOURS,
        )
        return [_not_its_own(seed, ranking) for (seed, _), ranking in zip(seeds, rankings, strict=True)]

    async def compared(self, passages: Sequence[Passage], queries: Sequence[QueryVectors]) -> tuple[Passage, ...]:
        """The passages with their baselines, and all with their similarity to the questions: those, too, that only
        neighbours have found.
        """
        asked = [query.dense for query in queries if query.dense is not None and not query.hypothetical]
        unknown = [passage.passage_id for passage in passages if passage.similarity is None]
        vectors = await self.index.vectors(self.collection, unknown) if asked and unknown else {}
        similarities = {name: _greatest_cosine(vector, asked) for name, vector in vectors.items()}
        return tuple(
            passage.model_copy(
                update={
                    "similarity": similarities.get(passage.passage_id, passage.similarity),
                    "baseline": baseline_of(passage.language, queries[passage.query].baselines),
                }
            )
            for passage in passages
        )


def _not_its_own(seed: Passage, ranking: Ranking) -> Ranking:
    """The list, the seed no nearer to itself than its nearest neighbour is: so none of them gains on it."""
    others = [passage for passage in ranking.passages if passage.passage_id != seed.passage_id]
    first = [seed.model_copy(update={"score": others[0].score})] if others else []
    return Ranking(ranking.arm, [*first, *others])


def _greatest_cosine(vector: Vector, questions: Sequence[Vector]) -> float:
    return max(float(question @ vector / (np.linalg.norm(question) * np.linalg.norm(vector))) for question in questions)


async def rerank(
    msg: Retrieve, passages: tuple[Passage, ...], reranker: Reranker, *, top_k: int
) -> tuple[tuple[Passage, ...], tuple[str, ...]]:
    """The best `top_k` as the re-ranker sees them; as the search does where it fails, marked."""
    texts = ["\n".join(filter(None, (one.title, one.section, one.text))) for one in passages]
    within_s = (msg.header.deadline - time.time()) * _SHARE_OF_TIME
    try:
        scores = await reranker.rerank(msg.asked.question, texts, timeout_s=within_s)
    except (RerankerUnavailable, InvalidModelReply):
        return passages[:top_k], (RERANKER_DOWN,)
    return reranked(passages, scores, top_k=top_k), ()
