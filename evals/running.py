"""All questions through the stages that are wanted, stage by stage, so that none disturbs the times of another."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from evals.corpus import Corpus
from evals.dataset import EvalQuestion, JudgedPair
from evals.indexing import Progress
from evals.pipeline import DEADLINE_S, Pipeline
from shared.contracts import Answered, Generate, Grade, Passage, Retrieve

_T = TypeVar("_T")

Stage = Literal["retrieval", "grading", "decision", "answer"]
STAGES: Final[tuple[Stage, ...]] = ("retrieval", "grading", "decision", "answer")

AT_ONCE: Final = 4
"""Questions in hand at once, but for the search: its times are those of one question alone."""
_PAIRS_AT_ONCE: Final = 8
"""Passages judged in one go: as many as a search brings, and few enough for the embedded judge to embed them all."""


@dataclass(slots=True)
class Run:
    """One question and what each stage made of it."""

    asked: EvalQuestion
    query: Retrieve | None = None
    found: Grade | None = None
    decided: Generate | None = None
    outcome: Answered | None = None
    narrowed: dict[str, tuple[Passage, ...]] = field(default_factory=dict)
    """What a search in documents of one language alone brought, by language."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Work by stage: `rewrite`, `retrieve`, `grade`, `generate`."""

    @property
    def passages(self) -> tuple[Passage, ...]:
        """What the search brought, best first."""
        return self.found.passages if self.found is not None else ()


@dataclass(frozen=True, slots=True)
class JudgedScore:
    """A judged pair, and the judge's score; None where it could not tell."""

    pair: JudgedPair
    language: str
    """The question's."""
    score: float | None


async def run_stages(
    questions: Sequence[EvalQuestion], pipeline: Pipeline, stages: frozenset[Stage], progress: Progress
) -> list[Run]:
    """The questions through search, decision and answer, as far as the stages want."""
    runs = [Run(asked) for asked in questions]
    if not stages & {"retrieval", "decision", "answer"}:
        return runs

    async def rewrite(run: Run) -> None:
        run.query = await _timed(run, "rewrite", pipeline.rewrite(run.asked))

    async def retrieve(run: Run) -> None:
        assert run.query is not None
        run.found = await _timed(run, "retrieve", pipeline.retrieve(run.query))

    async def grade(run: Run) -> None:
        assert run.found is not None
        run.decided = await _timed(run, "grade", pipeline.grade(run.found))

    async def generate(run: Run) -> None:
        assert run.decided is not None
        run.outcome = await _timed(run, "generate", pipeline.generate(run.decided))

    await _each("rewriting", runs, rewrite, progress, at_once=AT_ONCE)
    if runs and runs[0].query is not None:
        await pipeline.retrieve(runs[0].query)  # loads the model, which no time should hold
    await _each("searching", runs, retrieve, progress, at_once=1)
    if stages & {"decision", "answer"}:
        await _each("grading", runs, grade, progress, at_once=AT_ONCE)
    if "answer" in stages:
        await _each("answering", runs, generate, progress, at_once=AT_ONCE)
    return runs


async def search_by_language(runs: Sequence[Run], pipeline: Pipeline, progress: Progress) -> None:
    """Every question once more in each language that it has something relevant in, with the search narrowed to it."""

    async def search(run: Run) -> None:
        assert run.query is not None
        for language in sorted({gold.language for gold in run.asked.gold if gold.language}):
            run.narrowed[language] = (await pipeline.retrieve(run.query, (language,))).passages

    await _each("searching by language", runs, search, progress, at_once=1)


async def judge_pairs(
    pairs: Sequence[JudgedPair],
    questions: Sequence[EvalQuestion],
    corpus: Corpus,
    pipeline: Pipeline,
    progress: Progress,
) -> list[JudgedScore]:
    """Every pair through the judge, as the grader would ask it."""
    asked = {question.id: question for question in questions}
    by_query: dict[str, list[JudgedPair]] = defaultdict(list)
    for pair in pairs:
        by_query[pair.query_id].append(pair)
    batches = [
        each[at : at + _PAIRS_AT_ONCE] for each in by_query.values() for at in range(0, len(each), _PAIRS_AT_ONCE)
    ]
    judged: list[JudgedScore] = []

    async def judge(batch: list[JudgedPair]) -> None:
        question = asked[batch[0].query_id]
        passages = [next(corpus.documents[pair.corpus_id].passages()) for pair in batch]
        deadline = time.time() + DEADLINE_S
        grading = await pipeline.judge.grade_all(question.question, question.language, passages, deadline=deadline)
        judged.extend(
            JudgedScore(pair, question.language, grade.score) for pair, grade in zip(batch, grading.grades, strict=True)
        )

    await _each("judging pairs", batches, judge, progress, at_once=AT_ONCE)
    return sorted(judged, key=lambda each: (each.pair.query_id, each.pair.corpus_id))


async def _timed(run: Run, step: str, work: Awaitable[_T]) -> _T:
    started = time.perf_counter()
    try:
        return await work
    finally:
        run.seconds[step] = time.perf_counter() - started


async def _each(
    doing: str, things: Sequence[_T], do: Callable[[_T], Awaitable[None]], progress: Progress, *, at_once: int
) -> None:
    done, slots = 0, asyncio.Semaphore(at_once)
    progress(doing, 0, len(things))

    async def one(thing: _T) -> None:
        nonlocal done
        async with slots:
            await do(thing)
        done += 1
        progress(doing, done, len(things))

    tasks = [asyncio.create_task(one(thing)) for thing in things]
    try:
        await asyncio.gather(*tasks)
    finally:
        # After a failure none may go on: what they work with is about to be closed.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
