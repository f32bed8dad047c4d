"""How well the search finds what is relevant: measures of the library ir-measures, per question and by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import ir_measures

from evals.dataset import EvalQuestion, Gold
from evals.figures import Figure, PerQuery, by_group, mean, means, quantile
from evals.running import Run
from evals.sheet import StageSheet, degraded_in
from shared.contracts import Passage

MEASURES: Final = ("nDCG@10", "R@5", "R@10", "P@5", "RR")
TOP: Final = 5
"""Passages that a narrowed search is judged by."""
_MS: Final = 1000.0


def retrieval_sheet(runs: Sequence[Run]) -> StageSheet:
    """Figures over the questions that something in the corpus is relevant to, and times over all."""
    measured = [run for run in runs if run.asked.gold]
    rankings = {run.asked.id: units(run.asked, run.passages) for run in measured}
    relevant = {run.asked.id: {unit(gold): gold.score for gold in run.asked.gold} for run in measured}
    per_query = values_of(rankings, relevant)
    figures = by_group(
        measured, lambda run: run.asked.groups, lambda group: means([per_query[r.asked.id] for r in group], MEASURES)
    )
    times_ms = [run.seconds["retrieve"] * _MS for run in runs]
    figures["all"] |= {"ms p50": quantile(times_ms, 0.5), "ms p95": quantile(times_ms, 0.95)}
    if any(run.narrowed for run in measured):
        figures |= narrowed_figures(measured)
    facts = {
        "search_ms": [round(each, 2) for each in times_ms],
        "degraded": degraded_in(run.found.header for run in runs if run.found is not None),
        "without_relevant": len(runs) - len(measured),
    }
    return StageSheet(figures=figures, per_query=per_query, facts=facts)


def values_of(rankings: Mapping[str, Sequence[str]], relevant: Mapping[str, Mapping[str, int]]) -> PerQuery:
    """Every measure of every question in `relevant`. Rankings are ids, best first; relevance is graded, > 0."""
    if not relevant:
        return {}
    qrels = {query_id: dict(golds) for query_id, golds in relevant.items()}
    # Places as scores: fused scores may be equal, and the library would then order by id.
    run = {
        query_id: {each: float(-place) for place, each in enumerate(rankings.get(query_id, ()))} for query_id in qrels
    }
    found: PerQuery = {query_id: dict.fromkeys(MEASURES, 0.0) for query_id in qrels}
    wanted = [ir_measures.parse_measure(name) for name in MEASURES]
    for value in ir_measures.iter_calc(wanted, qrels, run):
        found[value.query_id][str(value.measure)] = float(value.value)
    return found


def unit(gold: Gold) -> str:
    """The name of something relevant: a document, or a section of it."""
    return gold.document_id if gold.anchor is None else f"{gold.document_id}#{gold.anchor}"


def units(asked: EvalQuestion, passages: Sequence[Passage]) -> list[str]:
    """The ranking by what is relevant: a gold section counts where its first passage stands, and only once.

    Every other passage keeps its place under a name of its own, so that ranks are those of passages.
    """
    ranking: list[str] = []
    for place, passage in enumerate(passages):
        names = [unit(gold) for gold in asked.gold if gold.holds(passage)]
        new = [name for name in names if name not in ranking]
        ranking.append(new[0] if new else f"{passage.passage_id} {place}")
    return ranking


def narrowed_figures(runs: Sequence[Run]) -> dict[str, dict[str, Figure]]:
    """Share of questions with a gold document, and a gold section, among the first five; by languages.

    `narrowed.ru-en` is of Russian questions searched in English documents alone, `narrowed.ru-any` in all.
    """
    cases = [
        (f"narrowed.{run.asked.language}-{language}", run.asked, passages[:TOP], language)
        for run in runs
        for language, passages in [*run.narrowed.items(), ("any", run.passages)]
    ]

    def figures_of(group: Sequence[tuple[str, EvalQuestion, Sequence[Passage], str]]) -> dict[str, Figure]:
        golds = [
            ([gold for gold in asked.gold if language in ("any", gold.language)], passages)
            for _, asked, passages, language in group
        ]
        documents = [any(gold.in_document(each) for gold in gold_of for each in found) for gold_of, found in golds]
        sections = [any(gold.holds(each) for gold in gold_of for each in found) for gold_of, found in golds]
        return {f"document@{TOP}": mean(documents), f"section@{TOP}": mean(sections)}

    figures = by_group(cases, lambda case: (case[0],), figures_of)
    return {group: values for group, values in figures.items() if group != "all"}
