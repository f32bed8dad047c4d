"""The production path in this process: the services' own handlers, settings and clients, and no Redis.

Every step of a job is a function call; each gets the time that a whole job has by default, for the evaluation runs
stage by stage. The web is off: what it finds changes from day to day.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from evals.corpus import Corpus
from evals.dataset import EvalQuestion
from evals.indexing import COLLECTION, Progress, built_index
from services.gateway.decision import admission
from services.gateway.settings import GatewaySettings
from services.generator.handler import generate
from services.generator.settings import AnsweringPolicy
from services.grader import prompts
from services.grader.decision import GradingPolicy
from services.grader.handler import grade
from services.grader.refining import Refiner, open_refiner
from services.grader.settings import GraderSettings
from services.retriever.decision import RetrievalPolicy
from services.retriever.handler import retrieve
from services.retriever.settings import RetrieverSettings
from services.rewriter.handler import rewrite
from services.rewriter.settings import RewritingPolicy
from shared.clients.chat import ChatModel, open_chat
from shared.clients.embeddings import Embedder, open_embedder
from shared.clients.index import PassageIndex
from shared.clients.judge import Judge, open_judge, open_judge_chat
from shared.clients.languages import LanguageMeans
from shared.clients.rerank import Reranker, open_reranker
from shared.contracts import Answered, Ask, Budget, Command, Filters, Generate, Grade, Retrieve, Rewrite, SearchWeb
from shared.documents import SPLITTER_VERSION, SplitSettings
from shared.runtime.controls import Controls
from shared.settings import EmbedSettings, JudgeSettings, LlmSettings, RerankSettings

DEADLINE_S: Final = 60.0
"""The default of `Ask`."""
C = TypeVar("C", bound=Command)

DEPTH: Final = 10
"""Passages searched for at least: the measures look at the first ten."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """The stages' functions with their clients and policies in place."""

    rewrite: Callable[[Rewrite], Awaitable[Retrieve | Generate]]
    retrieve: Callable[[Retrieve], Awaitable[Grade]]
    grade: Callable[[Grade], Awaitable[Generate | SearchWeb | Rewrite]]
    generate: Callable[[Generate], Awaitable[Answered | Rewrite]]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All stages between question and answer."""

    judge: Judge
    budget: Budget
    top_k: int
    """Passages that are graded."""
    handlers: Handlers
    settings: dict[str, Any]
    """Everything that the figures depend on besides the data; no addresses and no keys."""

    async def rewrite(self, asked: EvalQuestion) -> Retrieve:
        """Admit the question and write its queries."""
        job_id = hashlib.sha256(asked.id.encode()).hexdigest()[:16]
        ask = Ask(question=asked.question, job_id=job_id, entry_id="0-0", top_k=max(DEPTH, self.top_k), web="off")
        command = admission(ask, asked.principal, submitted_at=time.time(), budget=self.budget)
        rewritten = await self.handlers.rewrite(command)
        if not isinstance(rewritten, Retrieve):
            raise TypeError("without small talk and clarification every question is searched")
        return rewritten

    async def retrieve(self, command: Retrieve, languages: tuple[str, ...] = ()) -> Grade:
        """Search, in passages of these languages alone if any are named."""
        if languages:
            asked = command.asked.model_copy(update={"filters": Filters(languages=languages)})
            command = command.model_copy(update={"asked": asked})
        return await self.handlers.retrieve(in_time(command))

    async def grade(self, command: Grade) -> Generate:
        """Judge the first `top_k` passages and decide."""
        first = command.model_copy(update={"passages": command.passages[: self.top_k]})
        decided = await self.handlers.grade(in_time(first))
        if not isinstance(decided, Generate):
            raise TypeError(f"with the web off the grader sends to the generator, not {type(decided).__name__}")
        return decided

    async def generate(self, command: Generate) -> Answered:
        outcome = await self.handlers.generate(in_time(command))
        if not isinstance(outcome, Answered):
            raise TypeError(f"with one hop the generator ends the job, and sends no {type(outcome).__name__}")
        return outcome


@asynccontextmanager
async def open_pipeline(
    corpus: Corpus, data_dir: Path, *, top_k: int, vectors: Path | None, progress: Progress
) -> AsyncIterator[Pipeline]:
    """The pipeline over this corpus, as the settings of the environment want it; everything is closed afterwards."""
    async with AsyncExitStack() as closing:
        clients = _open_clients(data_dir)
        for client in clients.all:
            closing.push_async_callback(client.aclose)
        index = await built_index(corpus, data_dir, clients.embedder, vectors=vectors, progress=progress)
        closing.push_async_callback(index.aclose)
        policies = _Policies()
        yield Pipeline(
            judge=clients.judge,
            budget=GatewaySettings().budget,
            top_k=top_k,
            handlers=_handlers(clients, index, policies),
            settings=_settings(clients, index, policies, from_files=corpus.from_files) | {"top_k": top_k},
        )


@dataclass(frozen=True, slots=True)
class _Clients:
    embedder: Embedder | None
    chat: ChatModel | None
    judge: Judge
    refiner: Refiner | None
    reranker: Reranker | None

    @property
    def all(self) -> list[Any]:
        return [
            each for each in (self.embedder, self.chat, self.judge, self.refiner, self.reranker) if each is not None
        ]


def _open_clients(data_dir: Path) -> _Clients:
    embedder, llm = open_embedder(EmbedSettings(), data_dir), LlmSettings()
    judge = open_judge(JudgeSettings(), llm, embedder, prompts=prompts)
    refiner = open_refiner(GraderSettings(), embedder, lambda: open_judge_chat(JudgeSettings(), llm))
    return _Clients(embedder, open_chat(llm), judge, refiner, open_reranker(RerankSettings()))


@dataclass(frozen=True, slots=True)
class _Policies:
    rewriting: RewritingPolicy = field(
        # Every question of a set is to be searched.
        default_factory=lambda: RewritingPolicy(small_talk=False, clarify=False)
    )
    retrieval: RetrievalPolicy = field(default_factory=lambda: RetrieverSettings().policy(COLLECTION))
    grading: GradingPolicy = field(default_factory=lambda: GraderSettings().policy)
    answering: AnsweringPolicy = field(default_factory=AnsweringPolicy)


def _handlers(clients: _Clients, index: PassageIndex, policies: _Policies) -> Handlers:
    """The handlers as each service's `open_stage` sets them up; a test compares them."""
    embedder = clients.embedder
    return Handlers(
        rewrite=partial(rewrite, chat=clients.chat, policy=policies.rewriting),
        retrieve=partial(
            retrieve,
            index=index,
            embedder=embedder,
            policy=policies.retrieval,
            languages=LanguageMeans(embedder) if embedder is not None else None,
            reranker=clients.reranker,
        ),
        grade=partial(grade, judge=clients.judge, policy=policies.grading, refiner=clients.refiner, keeper=None),
        generate=partial(
            generate,
            chat=clients.chat,
            embedder=embedder,
            policy=policies.answering,
            controls=Controls(),
            telling=None,
            groundedness=None,
        ),
    )


def _settings(clients: _Clients, index: PassageIndex, policies: _Policies, *, from_files: bool) -> dict[str, Any]:
    retrieval = {name: value for name, value in asdict(policies.retrieval).items() if name != "collection"}
    splitting = {"version": SPLITTER_VERSION, **SplitSettings().model_dump(mode="json")} if from_files else {}
    return {
        "index": index.version,
        "chat": clients.chat.name if clients.chat is not None else "none",
        "judge": f"{clients.judge.name}@{clients.judge.version}",
        "reranker": RerankSettings().model if clients.reranker is not None else "none",
        **_prefixed("splitting", splitting),
        **_prefixed("rewriting", policies.rewriting.model_dump(mode="json")),
        **_prefixed("retrieval", retrieval),
        **_prefixed("grading", asdict(policies.grading)),
        "refining": GraderSettings().refine,
        **_prefixed("answering", policies.answering.model_dump(mode="json")),
    }


def fingerprint(settings: dict[str, Any]) -> str:
    """12 hexadecimal digits; equal for equal settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def in_time(command: C) -> C:
    """The command with a whole job's time left."""
    header = command.header.model_copy(update={"deadline": time.time() + DEADLINE_S})
    return command.model_copy(update={"header": header})


def _prefixed(prefix: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": value for name, value in facts.items()}
