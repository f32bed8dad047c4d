"""Cairn's own retriever, with its settings' defaults: the handlers that the service runs, on the embedded engine."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.peers.sets import TOP_K, AskedQuestion, CorpusPassage, EvaluationSet, Search, Vectors
from services.retriever.handler import retrieve
from services.retriever.ingest import ingest
from services.retriever.settings import RetrieverSettings
from shared.clients.embedded_e5 import DIMENSION, EmbeddedE5
from shared.clients.index.edge import EdgeIndex
from shared.clients.languages import LanguageMeans
from shared.contracts import Document, Header, Ingest, PassageDraft, Question, Retrieve
from shared.language import detect_language


class GivenVectors:
    """An embedder of the set's texts, by its vectors; the few others (the language means) go to the embedded e5."""

    fingerprint = "given"
    dimension = DIMENSION

    def __init__(self, passages: Mapping[str, Vectors], questions: Mapping[str, Vectors]) -> None:
        self._passages = passages
        self._questions = questions
        self._others = EmbeddedE5(processes=1)

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._questions[text] for text in texts])

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if all(text in self._passages for text in texts):
            return np.stack([self._passages[text] for text in texts])
        return await self._others.embed_passages(texts)

    async def aclose(self) -> None:
        await self._others.aclose()


@contextmanager
def opened(given: EvaluationSet) -> Iterator[Search]:
    """Search over an index of this set. Questions are searched as asked, without the rewriter."""
    embedder = GivenVectors(
        {passage.whole: vector for passage, vector in zip(given.passages, given.vectors, strict=True)},
        {each.question: vector for each, vector in zip(given.questions, given.question_vectors, strict=True)},
    )
    languages = LanguageMeans(embedder)
    policy = RetrieverSettings(_env_file=None).policy(given.name)
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner() as runner:
        index = EdgeIndex(Path(directory), fingerprint=embedder.fingerprint)

        async def build() -> None:
            for passage in given.passages:
                await ingest(_message(passage), index=index, embedder=embedder, default_collection=given.name)
            await languages.get()

        def search(asked: AskedQuestion) -> list[str]:
            job = retrieve(_command(asked), index=index, embedder=embedder, policy=policy, languages=languages)
            return [passage.document_id for passage in runner.run(job).passages]

        runner.run(build())
        yield search
        runner.run(index.aclose())
        runner.run(embedder.aclose())


def _message(passage: CorpusPassage) -> Ingest:
    document = Document(
        document_id=passage.id, title=passage.title, uri=passage.id, content_hash="1", language=passage.language
    )
    draft = PassageDraft(ordinal=0, text=passage.text, language=passage.language)
    return Ingest(run_id="peers", document=document, passage_total=1, passages=(draft,))


def _command(asked: AskedQuestion) -> Retrieve:
    now = time.time()
    header = Header(
        job_id="peers",
        entry_id="1-0",
        submitted_at=now,
        deadline=now + 60,
        language=detect_language(asked.question),
    )
    question = Question(question=asked.question, top_k=TOP_K)
    return Retrieve(header=header, asked=question, route="factual", queries=(asked.question,))
