"""Bounds that figures must keep, from a TOML file: `[retrieval.all]` and below it `"nDCG@10" = 0.90`.

A number is the least that is good enough. A table says it in full: `"Brier" = { max = 0.2 }`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.sheet import Sheet
from shared.errors import PermanentError


class InvalidGate(PermanentError):
    """The file of bounds can't be used; the text names what is wrong, and what there is."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What one figure must keep."""

    group: str
    """`retrieval.all`, `retrieval.lang.ru` …"""
    name: str
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class Miss:
    """A figure that does not keep its bound."""

    bound: Bound
    value: float | None

    def line(self) -> str:
        """In words, for people."""
        value = "nothing to compute it from" if self.value is None else f"{self.value:.4g}"
        if self.bound.at_least is not None and (self.value is None or self.value < self.bound.at_least):
            return f"{self.bound.group} {self.bound.name}: {value}, at least {self.bound.at_least:g} wanted"
        return f"{self.bound.group} {self.bound.name}: {value}, at most {self.bound.at_most:g} wanted"


def read_gate(path: Path) -> list[Bound]:
    """The bounds in the file. Raises InvalidGate."""
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidGate(f"{path}: can't be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidGate(f"{path}: not TOML: {error}") from error
    bounds = list(_bounds(path, (), tables))
    if not bounds:
        raise InvalidGate(f'{path}: there is no bound in it, such as [retrieval.all] and "nDCG@10" = 0.9')
    return bounds


def check_stages(bounds: list[Bound], stages: Collection[str]) -> None:
    """Raises InvalidGate for a bound on a stage that is not measured; before hours of measuring the others."""
    for bound in bounds:
        stage = bound.group.partition(".")[0]
        if stage not in stages:
            raise InvalidGate(f"[{bound.group}]: {stage} is not measured; --stages names {', '.join(stages)}")


def misses(bounds: list[Bound], sheet: Sheet) -> list[Miss]:
    """The bounds that the sheet does not keep. Raises InvalidGate for a group or figure that it does not have."""
    check_stages(bounds, sheet.stages)
    return [miss for bound in bounds if (miss := _missed(bound, sheet)) is not None]


def _missed(bound: Bound, sheet: Sheet) -> Miss | None:
    groups = sheet.groups()
    if bound.group not in groups:
        raise InvalidGate(f"there is no group [{bound.group}]; there are {', '.join(groups)}")
    figures = groups[bound.group]
    if bound.name not in figures:
        raise InvalidGate(f'there is no figure "{bound.name}" in [{bound.group}]; there are {", ".join(figures)}')
    value = figures[bound.name]
    low = bound.at_least is not None and (value is None or value < bound.at_least)
    high = bound.at_most is not None and (value is None or value > bound.at_most)
    return Miss(bound, value) if low or high else None


def _bounds(path: Path, place: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[Bound]:
    for name, value in table.items():
        if isinstance(value, dict) and not value.keys() <= {"min", "max"}:
            yield from _bounds(path, (*place, name), value)
        elif len(place) < 2:
            raise InvalidGate(f"{path}: {name!r} stands outside of a group such as [retrieval.all]")
        else:
            wanted = value if isinstance(value, dict) else {"min": value}
            if not wanted or not all(_is_number(each) for each in wanted.values()):
                raise InvalidGate(f"{path}: {'.'.join((*place, name))} is {value!r}, not a number")
            yield Bound(".".join(place), name, wanted.get("min"), wanted.get("max"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
