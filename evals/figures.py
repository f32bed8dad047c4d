"""Figures by group, and the small arithmetic that all stages share. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

Figure: TypeAlias = float | None
"""None where there is nothing to compute it from."""
Figures: TypeAlias = dict[str, dict[str, Figure]]
"""Figures by group (`all`, `lang.ru`, `kind.faq` …) and name; `n` is how many questions or pairs they rest on."""
PerQuery: TypeAlias = dict[str, dict[str, float]]
"""Values by question and measure."""

T = TypeVar("T")


def by_group(
    things: Iterable[T], groups_of: Callable[[T], Iterable[str]], figures_of: Callable[[Sequence[T]], dict[str, Figure]]
) -> Figures:
    """Figures of every group, `all` first and the others in order of their names."""
    members: dict[str, list[T]] = {"all": []}
    for thing in things:
        for group in groups_of(thing):
            members.setdefault(group, []).append(thing)
    ordered = ["all", *sorted(group for group in members if group != "all")]
    return {group: {"n": len(members[group]), **figures_of(members[group])} for group in ordered}


def means(values: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, Figure]:
    """The mean of each measure over those that have it."""
    return {name: mean([value[name] for value in values if name in value]) for name in names}


def mean(values: Sequence[float]) -> Figure:
    return statistics.fmean(values) if values else None


def share(true: int, among: int) -> Figure:
    """`true` of `among`, in [0, 1]; None of none."""
    return true / among if among else None


def quantile(values: Sequence[float], share_below: float) -> Figure:
    """The value that this share of `values` stays below, between neighbours in proportion."""
    return float(np.quantile(values, share_below)) if values else None
