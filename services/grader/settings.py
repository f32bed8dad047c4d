"""When a retrieval counts as correct, ambiguous or incorrect."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from services.grader.decision import GradingPolicy, Rule
from shared.contracts import Name
from shared.settings import group
from shared.settings_files import Settings

Share = Annotated[float, Field(ge=0, le=1)]


class GraderSettings(Settings):
    """Thresholds of the decision, and refinement. `python -m evals.fit_judge` makes the embedded judge's scores fit."""

    model_config = group("CAIRN_GRADER_")

    rule: Rule = "paper"
    """paper: good passages answer, doubtful ones go to the web, too; counting: enough passages answer."""
    upper: Share = 0.7
    """A passage of this score or more is relevant."""
    lower: Share = 0.3
    """A passage of a lower score is irrelevant."""
    min_correct: Annotated[int, Field(ge=1)] = 1
    """Relevant passages that make a retrieval correct; with the counting rule, passages that are enough."""
    max_evidence: Annotated[int, Field(ge=1)] = 20
    refine: Literal["words", "embedder", "judge"] = "words"
    """Who chooses the strips of a passage that are worth reading."""
    refine_within: Annotated[float, Field(ge=0, le=2)] = 0.05
    """The embedder keeps strips whose cosine is at most this far below that of the passage's best one."""

    keep_web: Name | None = None
    """Collection for web passages that were found relevant; none keeps none."""
    keep_web_days: Annotated[float, Field(gt=0)] = 30.0
    """How long they are found, from the day of fetching."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.lower > self.upper:
            raise ValueError("CAIRN_GRADER_LOWER must not exceed CAIRN_GRADER_UPPER")
        return self

    @property
    def policy(self) -> GradingPolicy:
        return GradingPolicy(**{each.name: getattr(self, each.name) for each in fields(GradingPolicy)})
