"""How well the judge tells passages that help from others: area under the curve, Brier score, reliability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from scipy.stats import mannwhitneyu

from evals.cascade import Bounds, cascade_figures
from evals.figures import Figure, PerQuery, by_group, mean, share
from evals.running import JudgedScore
from evals.sheet import StageSheet

BINS: Final = 10


def grading_sheet(judged: Sequence[JudgedScore], cascade: Bounds | None = None) -> StageSheet:
    """Figures over all pairs, by language, and by origin of the pairs that don't help.

    `origin.bm25` sets every relevant pair against the irrelevant ones of that origin. `cascade`, the bounds between
    which a chat model would be asked, gives a group of that name.
    """
    graded = [each for each in judged if each.score is not None]
    figures = by_group(graded, lambda each: ("all", f"lang.{each.language}"), _figures)
    figures["all"]["ungraded"] = len(judged) - len(graded)
    relevant = [each for each in graded if each.pair.relevant]
    for origin in sorted({each.pair.origin for each in graded if not each.pair.relevant}):
        against = [each for each in graded if not each.pair.relevant and each.pair.origin == origin]
        figures[f"origin.{origin}"] = {"n": len(against), **_figures([*relevant, *against])}
    if cascade is not None:
        figures["cascade"] = {"n": len(graded), **cascade_figures(_scores(graded), _labels(graded), cascade)}
    facts = {"reliability": reliability(_scores(graded), _labels(graded))}
    return StageSheet(figures=figures, per_query=_per_query(graded), facts=facts)


def auc(relevant: Sequence[float], irrelevant: Sequence[float]) -> Figure:
    """Probability that a relevant pair scores above an irrelevant one, ties counting half; None without either."""
    if not relevant or not irrelevant:
        return None
    return float(mannwhitneyu(relevant, irrelevant).statistic) / (len(relevant) * len(irrelevant))


def brier(scores: Sequence[float], labels: Sequence[bool]) -> Figure:
    """Mean squared distance of score and truth, in [0, 1]; 0 is best, .25 is what always saying .5 gets."""
    return mean([(score - label) ** 2 for score, label in zip(scores, labels, strict=True)])


def reliability(scores: Sequence[float], labels: Sequence[bool]) -> list[dict[str, Any]]:
    """By tenths of the score: how many pairs, their mean score, and the share of them that is relevant."""
    if not scores:
        return []
    places = np.minimum((np.asarray(scores) * BINS).astype(int), BINS - 1)
    found = []
    for place in range(BINS):
        inside = places == place
        if count := int(inside.sum()):
            found.append(
                {
                    "from": place / BINS,
                    "to": (place + 1) / BINS,
                    "n": count,
                    "score": float(np.asarray(scores)[inside].mean()),
                    "relevant": float(np.asarray(labels)[inside].mean()),
                }
            )
    return found


def calibration_error(bins: Sequence[dict[str, Any]]) -> Figure:
    """Mean distance of score and share of relevant pairs over the bins, weighted by their pairs (ECE)."""
    total = sum(each["n"] for each in bins)
    return sum(each["n"] * abs(each["score"] - each["relevant"]) for each in bins) / total if total else None


def _figures(group: Sequence[JudgedScore]) -> dict[str, Figure]:
    scores, labels = _scores(group), _labels(group)
    positive = [score for score, label in zip(scores, labels, strict=True) if label]
    negative = [score for score, label in zip(scores, labels, strict=True) if not label]
    return {
        "AUC": auc(positive, negative),
        "Brier": brier(scores, labels),
        "ECE": calibration_error(reliability(scores, labels)),
        "relevant": share(len(positive), len(scores)),
    }


def _per_query(graded: Sequence[JudgedScore]) -> PerQuery:
    by_query: dict[str, list[JudgedScore]] = {}
    for each in graded:
        by_query.setdefault(each.pair.query_id, []).append(each)
    values = {query_id: brier(_scores(group), _labels(group)) for query_id, group in by_query.items()}
    return {query_id: {"Brier": value} for query_id, value in values.items() if value is not None}


def _scores(group: Sequence[JudgedScore]) -> list[float]:
    return [each.score for each in group if each.score is not None]


def _labels(group: Sequence[JudgedScore]) -> list[bool]:
    return [each.pair.relevant for each in group if each.score is not None]
