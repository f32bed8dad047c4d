"""The report as data: what was measured, on what, with which settings. Its JSON is read again by `--compare`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from shared.contracts import Contract, Header
from shared.errors import PermanentError
from shared.runtime.delivery import explain

FORMAT: Final = "cairn-eval/1"


class InvalidReport(PermanentError):
    """A file given to `--compare` is not a report of `cairn eval`."""


class StageSheet(Contract):
    """What was measured of one stage."""

    figures: dict[str, dict[str, float | None]]
    """By group (`all`, `lang.ru`, `kind.faq`, `pair.ru-en` …) and name."""
    per_query: dict[str, dict[str, float]] = Field(default_factory=dict)
    """By question and measure: what a comparison pairs."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """What is no single figure: times, bins, counts."""


class DatasetFacts(Contract):
    """Which data."""

    name: str
    split: str
    fingerprint: str
    corpus: str
    """Fingerprint of the passages, which depend on how files are split."""
    documents: int
    passages: int
    questions: int
    limit: int | None = None
    left_out: tuple[str, ...] = ()
    """Files that could not be read."""


class AskedFacts(Contract):
    """A question, so that a report can be read without its data."""

    question: str
    language: str
    kind: str | None = None
    answerable: bool = True


class Sheet(Contract):
    """One evaluation."""

    format: Literal["cairn-eval/1"] = FORMAT
    cairn: str
    """Version of the package."""
    date: str
    """ISO 8601, UTC."""
    command: str
    seconds: float = 0.0
    """Wall clock, building the index included."""
    dataset: DatasetFacts
    settings: dict[str, Any]
    settings_fingerprint: str
    questions: dict[str, AskedFacts]
    stages: dict[str, StageSheet]

    def groups(self) -> dict[str, dict[str, float | None]]:
        """All figures by `stage.group`."""
        return {
            f"{stage}.{group}": figures
            for stage, sheet in self.stages.items()
            for group, figures in sheet.figures.items()
        }


def read_sheet(path: Path) -> Sheet:
    """The report in this file. Raises InvalidReport."""
    try:
        return Sheet.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidReport(f"{path}: can't be read ({error.strerror})") from error
    except ValidationError as error:
        raise InvalidReport(f"{path}: not a report of this version of `cairn eval` ({explain(error)})") from error


def degraded_in(headers: Iterable[Header]) -> dict[str, int]:
    """How many jobs had to do without something, by what the outcome says of it."""
    return dict(Counter(reason for header in headers for reason in header.degraded).most_common())
