"""How figures and groups are written, on the terminal and on the page alike. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Groups: TypeAlias = Mapping[str, Mapping[str, float | None]]
"""Figures by group."""

TITLES = {
    "retrieval": "Retrieval: is what is relevant found?",
    "grading": "Grading: does the judge tell what helps?",
    "decision": "Decision: is the verdict on the retrieval right?",
    "answer": "Answer: right, silent where it must be, true to its sources?",
}
_APART = ("narrowed", "cascade", "cost")
_ABREAST = 7
"""Figures side by side beside `n`: more do not fit a terminal of 80 columns."""
_WHOLE = frozenset({"n", "ungraded"})
_TIMES = {"ms p50": 0, "ms p95": 0, "s p50": 2, "s p95": 2, "hops": 1, "calls": 1, "tokens": 0}


def written(name: str, value: float | None) -> str:
    """A figure as people read it; – where there is none."""
    if value is None:
        return "–"
    if name in _WHOLE:
        return f"{value:.0f}"
    return f"{value:.{_TIMES.get(name, 3)}f}"


def group_name(group: str) -> str:
    """`pair.ru-en` as `pair ru → en`."""
    dimension, _, name = group.partition(".")
    if dimension in ("pair", "narrowed"):
        name = name.replace("-", " → ", 1)
    return f"{dimension} {name}".strip()


def columns(figures: Groups) -> list[str]:
    """Names of all figures of these groups, in the order in which they come."""
    return list(dict.fromkeys(name for values in figures.values() for name in values))


def tables(figures: Groups) -> list[Groups]:
    """The groups as tables: those with figures of their own apart, and none that says again what `all` says."""
    apart = {dimension: {g: each for g, each in figures.items() if _dimension(g) == dimension} for dimension in _APART}
    rest = {group: each for group, each in figures.items() if _dimension(group) not in apart}
    counts = Counter(_dimension(group) for group in rest)
    everything = rest.get("all", {}).get("n")
    shown = {
        group: each
        for group, each in rest.items()
        if group == "all" or counts[_dimension(group)] > 1 or each.get("n") != everything
    }
    return [part for table in (shown, *apart.values()) for part in _narrow(table)]


def _narrow(table: Groups) -> Iterator[Groups]:
    """The table in parts that fit abreast, each with `n`."""
    names = [name for name in columns(table) if name != "n"]
    for start in range(0, len(names), _ABREAST):
        kept = {"n", *names[start : start + _ABREAST]}
        yield {group: {name: figures[name] for name in figures if name in kept} for group, figures in table.items()}


def _dimension(group: str) -> str:
    return group.partition(".")[0]


def remarks(facts: Mapping[str, Any]) -> list[str]:
    """What is worth a line below a stage's table."""
    found = []
    if facts.get("without_relevant"):
        found.append(f"{facts['without_relevant']} questions have nothing relevant in the corpus and are not counted")
    for case, counts in facts.get("verdicts", {}).items():
        found.append(f"verdicts, {case}: {_counted(counts)}")
    for case, counts in facts.get("statuses", {}).items():
        found.append(f"{case}: {_counted(counts)}")
    if facts.get("versions"):
        found.append(f"with {', '.join(facts['versions'])}")
    for stage, spent in facts.get("usage", {}).items():
        found.append(f"spent by the {stage}: {_counted(spent)}")
    for reason, count in facts.get("degraded", {}).items():
        found.append(f"degraded, {count} times: {reason}")
    return found


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"
