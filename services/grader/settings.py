"""When a retrieval counts as correct, ambiguous or incorrect."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from services.grader.decision import GradingPolicy, Rule
from shared.settings import group

Share = Annotated[float, Field(ge=0, le=1)]


class GraderSettings(BaseSettings):
    """Thresholds of the decision, calibrated by `python -m evals.fit_judge`."""

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

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.lower > self.upper:
            raise ValueError("CAIRN_GRADER_LOWER must not exceed CAIRN_GRADER_UPPER")
        return self

    @property
    def policy(self) -> GradingPolicy:
        return GradingPolicy(**{name: getattr(self, name) for name in GraderSettings.model_fields})
