"""How often the verdict on a retrieval is right: correct where the passages answer, not where they don't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from evals.figures import Figure, by_group, share
from evals.running import Run
from evals.sheet import StageSheet, degraded_in
from shared.contracts import Verdict

VERDICTS: Final[tuple[Verdict, ...]] = ("correct", "ambiguous", "incorrect")
Case = Literal["found", "missed", "unanswerable"]
CASES: Final[dict[Case, str]] = {
    "found": "answerable, and something relevant is among the passages",
    "missed": "answerable, and nothing relevant is among the passages",
    "unanswerable": "the corpus does not answer it",
}


def decision_sheet(runs: Sequence[Run], top_k: int) -> StageSheet:
    """Verdicts by what was there to be found, and how well they tell good retrievals from bad ones."""
    decided = [run for run in runs if run.decided is not None]
    figures = by_group(
        decided,
        lambda run: (*run.asked.groups, f"case.{case_of(run, top_k)}"),
        lambda group: _figures(group, top_k),
    )
    per_query = {
        run.asked.id: {
            "right": float((verdict_of(run) == "correct") == (case_of(run, top_k) == "found")),
            "right, lenient": float((verdict_of(run) != "incorrect") == (case_of(run, top_k) == "found")),
        }
        for run in decided
    }
    counts = {case: Counter(verdict_of(run) for run in decided if case_of(run, top_k) == case) for case in CASES}
    facts = {
        "verdicts": {case: {verdict: counts[case][verdict] for verdict in VERDICTS} for case in CASES},
        "degraded": degraded_in(run.decided.header for run in decided if run.decided is not None),
    }
    return StageSheet(figures=figures, per_query=per_query, facts=facts)


def case_of(run: Run, top_k: int) -> Case:
    """What there was to be seen for the grader. Without known passages, answerable counts as found."""
    if not run.asked.answerable:
        return "unanswerable"
    if not run.asked.gold or any(run.asked.is_gold(passage) for passage in run.passages[:top_k]):
        return "found"
    return "missed"


def verdict_of(run: Run) -> Verdict:
    assert run.decided is not None
    return run.decided.verdict


def balanced_accuracy(said: Sequence[bool], true: Sequence[bool]) -> Figure:
    """Mean of the shares that are right among the true and among the false; None where either has none."""
    hits = [one for one, other in zip(said, true, strict=True) if other]
    rejections = [not one for one, other in zip(said, true, strict=True) if not other]
    return (sum(hits) / len(hits) + sum(rejections) / len(rejections)) / 2 if hits and rejections else None


def _figures(group: Sequence[Run], top_k: int) -> dict[str, Figure]:
    """Balanced accuracy of "correct" and, `lenient`, of "not incorrect"; and the shares of the verdicts."""
    verdicts = [verdict_of(run) for run in group]
    good = [case_of(run, top_k) == "found" for run in group]
    return {
        "balanced": balanced_accuracy([verdict == "correct" for verdict in verdicts], good),
        "lenient": balanced_accuracy([verdict != "incorrect" for verdict in verdicts], good),
        **{verdict: share(verdicts.count(verdict), len(verdicts)) for verdict in VERDICTS},
    }
