"""Two reports side by side: which differences are real, and what else changed. Paired by question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap, permutation_test

from evals.sheet import InvalidReport, Sheet

ALPHA: Final = 0.05
RESAMPLES: Final = 9_999
SEED: Final = 20_240
"""Fixed: the same two reports give the same words twice."""
LOWER_IS_BETTER: Final = frozenset({"Brier"})

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure in both reports, over the questions that both have."""

    stage: str
    measure: str
    n: int
    before: float
    after: float
    low: float
    high: float
    """95 % bootstrap interval of the mean difference, after minus before."""
    p: float
    """Of the paired permutation test, two-sided, corrected after Holm over all measures shown."""

    @property
    def mean(self) -> float:
        return self.after - self.before

    @property
    def is_significant(self) -> bool:
        return self.p < ALPHA

    @property
    def verdict(self) -> str:
        """In words."""
        if not self.is_significant:
            return "no significant difference"
        better = (self.mean > 0) != (self.measure in LOWER_IS_BETTER)
        return "significantly better" if better else "significantly worse"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that two reports tell together."""

    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    """What makes the two unlike besides what was meant to differ."""
    settings: dict[str, tuple[Any, Any]]
    """Settings with different values: before, after."""


def compare(before: Sheet, after: Sheet) -> Comparison:
    """Every measure that both have a value of for at least two questions. Raises InvalidReport if there is none."""
    paired = [
        (stage, measure, *values)
        for stage, sheet in before.stages.items()
        if stage in after.stages
        for measure in _measures(sheet.per_query, after.stages[stage].per_query)
        if len((values := _paired(sheet.per_query, after.stages[stage].per_query, measure))[0]) > 1
    ]
    if not paired:
        raise InvalidReport("the two reports have no measure of two common questions: are they of the same data?")
    corrected = holm([p_value(one, other) for _, _, one, other in paired])
    differences = [
        Difference(stage, measure, len(one), float(one.mean()), float(other.mean()), *interval(other - one), p)
        for (stage, measure, one, other), p in zip(paired, corrected, strict=True)
    ]
    known = {**before.settings, **after.settings}
    settings = {
        name: (before.settings.get(name), after.settings.get(name))
        for name in known
        if before.settings.get(name) != after.settings.get(name)
    }
    return Comparison(tuple(differences), tuple(_warnings(before, after)), settings)


def p_value(before: Floats, after: Floats) -> float:
    """Of the paired permutation test of equal means: exact where there are few questions, else by resampling."""
    if np.array_equal(before, after):
        return 1.0
    tested = permutation_test(
        (before, after),
        lambda one, other, axis: np.mean(other, axis=axis) - np.mean(one, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(SEED),
    )
    return float(tested.pvalue)


def interval(differences: Floats) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean."""
    if np.all(differences == differences[0]):
        return float(differences[0]), float(differences[0])
    found = bootstrap(
        (differences,), np.mean, method="percentile", n_resamples=RESAMPLES, rng=np.random.default_rng(SEED)
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values corrected for being several (Holm 1979), in the same order; each at least what it was."""
    corrected = [0.0] * len(p_values)
    greatest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        greatest = max(greatest, min(1.0, p_values[place] * (len(p_values) - rank)))
        corrected[place] = greatest
    return corrected


def _measures(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> list[str]:
    names = dict.fromkeys(name for values in before.values() for name in values)
    others = {name for values in after.values() for name in values}
    return [name for name in names if name in others]


def _paired(
    before: dict[str, dict[str, float]], after: dict[str, dict[str, float]], measure: str
) -> tuple[Floats, Floats]:
    common = [each for each in before if measure in before[each] and measure in after.get(each, {})]
    return np.array([before[each][measure] for each in common]), np.array([after[each][measure] for each in common])


def _warnings(before: Sheet, after: Sheet) -> list[str]:
    found = []
    if before.dataset.fingerprint != after.dataset.fingerprint:
        found.append(
            f"different data: {before.dataset.name}/{before.dataset.split} {before.dataset.fingerprint} and "
            f"{after.dataset.name}/{after.dataset.split} {after.dataset.fingerprint}"
        )
    one, other = set(before.questions), set(after.questions)
    if one != other:
        found.append(
            f"different questions: {len(one & other)} in both, {len(one - other)} only before, "
            f"{len(other - one)} only after; only those in both are compared"
        )
    if lost := [stage for stage in before.stages if stage not in after.stages]:
        found.append(f"stages only before: {', '.join(lost)}")
    if new := [stage for stage in after.stages if stage not in before.stages]:
        found.append(f"stages only after: {', '.join(new)}")
    if before.cairn != after.cairn:
        found.append(f"different versions of Cairn: {before.cairn} and {after.cairn}")
    if before.settings == after.settings:
        found.append("the settings are the same: what differs is the code, or chance")
    return found
