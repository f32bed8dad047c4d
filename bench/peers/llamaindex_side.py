"""LlamaIndex: its vector index and its BM25 retriever, joined by QueryFusionRetriever's reciprocal ranks.

One query, so no model is asked. Its BM25 stems and drops stop words of one language for all; the default is English.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms.mock import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.retrievers.bm25 import BM25Retriever

from bench.peers.sets import CANDIDATES, TOP_K, AskedQuestion, EvaluationSet, Search


@contextmanager
def opened(given: EvaluationSet) -> Iterator[Search]:
    nodes: list[Any] = [
        TextNode(id_=passage.id, text=passage.whole, embedding=vector.tolist())
        for passage, vector in zip(given.passages, given.vectors, strict=True)
    ]
    vectors = {each.id: vector.tolist() for each, vector in zip(given.questions, given.question_vectors, strict=True)}
    # Passages and questions come with their vectors: the model is never asked.
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=given.vectors.shape[1]))
    by_meaning = index.as_retriever(similarity_top_k=CANDIDATES)
    by_words = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=CANDIDATES)
    fused = QueryFusionRetriever(
        [by_meaning, by_words],
        llm=MockLLM(),
        mode="reciprocal_rerank",
        similarity_top_k=TOP_K,
        num_queries=1,
        use_async=False,
    )

    def search(asked: AskedQuestion) -> list[str]:
        found = fused.retrieve(QueryBundle(asked.question, embedding=vectors[asked.id]))
        return [each.node.node_id for each in found]

    yield search
