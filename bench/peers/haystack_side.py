"""Haystack: BM25 and vectors of its in-memory store, joined by reciprocal ranks. Its defaults otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from haystack import Document, Pipeline
from haystack.components.joiners import DocumentJoiner
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever, InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from bench.peers.sets import CANDIDATES, TOP_K, AskedQuestion, EvaluationSet, Search


@contextmanager
def opened(given: EvaluationSet) -> Iterator[Search]:
    store = InMemoryDocumentStore(embedding_similarity_function="cosine", return_embedding=False)
    store.write_documents(
        [
            Document(id=passage.id, content=passage.whole, embedding=vector.tolist())
            for passage, vector in zip(given.passages, given.vectors, strict=True)
        ]
    )
    pipeline = Pipeline()
    pipeline.add_component("words", InMemoryBM25Retriever(store, top_k=CANDIDATES))
    pipeline.add_component("meaning", InMemoryEmbeddingRetriever(store, top_k=CANDIDATES))
    pipeline.add_component("joined", DocumentJoiner(join_mode="reciprocal_rank_fusion", top_k=TOP_K))
    pipeline.connect("words", "joined")
    pipeline.connect("meaning", "joined")
    vectors = {each.id: vector.tolist() for each, vector in zip(given.questions, given.question_vectors, strict=True)}

    def search(asked: AskedQuestion) -> list[str]:
        found = pipeline.run({"words": {"query": asked.question}, "meaning": {"query_embedding": vectors[asked.id]}})
        return [document.id for document in found["joined"]["documents"]]

    yield search
