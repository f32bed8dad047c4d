"""One evaluation, from the request to the sheet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from evals.answering import answer_sheet
from evals.dataset import Dataset, EvalQuestion
from evals.deciding import decision_sheet
from evals.grading import grading_sheet
from evals.indexing import Progress
from evals.lines import InvalidDataset
from evals.loading import load
from evals.measures import retrieval_sheet
from evals.pipeline import Pipeline, fingerprint, open_pipeline
from evals.running import Stage, judge_pairs, run_stages, search_by_language
from evals.sheet import AskedFacts, DatasetFacts, Sheet, StageSheet
from shared.clients.judge.embedded import EmbeddedJudge
from shared.settings import JudgeSettings


@dataclass(frozen=True, slots=True)
class Request:
    """What to evaluate, and how far."""

    folder: Path
    data_dir: Path
    """Where indexes and vectors are kept."""
    split: str = "dev"
    stages: frozenset[Stage] = frozenset({"retrieval"})
    limit: int | None = None
    top_k: int = 10
    vectors: Path | None = None
    command: str = "cairn eval"


async def evaluate(request: Request, progress: Progress) -> Sheet:
    """Run it. Raises InvalidDataset, and what the clients raise when a model or setting is at fault."""
    whole = load(request.folder, request.split)
    dataset = whole.limited(request.limit)
    if "grading" in request.stages and not whole.pairs:
        raise InvalidDataset(f"{request.folder}: the stage `grading` needs a pairs.tsv beside the questions")
    if "retrieval" in request.stages and not any(question.gold for question in dataset.questions):
        raise InvalidDataset(f"{request.folder}: no question has anything relevant: is there a qrels.tsv, or gold?")
    started = time.perf_counter()
    async with open_pipeline(
        dataset.corpus, request.data_dir, top_k=request.top_k, vectors=request.vectors, progress=progress
    ) as pipeline:
        stages = await _stages(dataset, pipeline, request.stages, progress)
    facts = dataset.corpus
    return Sheet(
        cairn=version("cairn"),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=request.command,
        seconds=round(time.perf_counter() - started, 1),
        dataset=DatasetFacts(
            name=dataset.name,
            split=dataset.split,
            fingerprint=dataset.fingerprint,
            corpus=facts.fingerprint,
            documents=len(facts.documents),
            passages=facts.passage_count,
            questions=len(dataset.questions),
            limit=request.limit,
            left_out=facts.left_out,
        ),
        settings=pipeline.settings,
        settings_fingerprint=fingerprint(pipeline.settings),
        questions={each.id: _asked(each) for each in dataset.questions},
        stages=stages,
    )


async def _stages(
    dataset: Dataset, pipeline: Pipeline, wanted: frozenset[Stage], progress: Progress
) -> dict[str, StageSheet]:
    runs = await run_stages(dataset.questions, pipeline, wanted, progress)
    sheets: dict[str, StageSheet] = {}
    if "retrieval" in wanted:
        if dataset.corpus.from_files:
            await search_by_language(runs, pipeline, progress)
        sheets["retrieval"] = retrieval_sheet(runs)
    if "grading" in wanted:
        judged = await judge_pairs(dataset.pairs, dataset.questions, dataset.corpus, pipeline, progress)
        settings = JudgeSettings()
        bounds = settings.cascade_low, settings.cascade_high
        sheets["grading"] = grading_sheet(judged, bounds if isinstance(pipeline.judge, EmbeddedJudge) else None)
    if "decision" in wanted:
        sheets["decision"] = decision_sheet(runs, pipeline.top_k)
    if "answer" in wanted:
        sheets["answer"] = answer_sheet(runs)
    return sheets


def _asked(question: EvalQuestion) -> AskedFacts:
    return AskedFacts(
        question=question.question,
        language=question.language,
        kind=question.kind,
        answerable=question.answerable,
    )
