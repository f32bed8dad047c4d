"""Settings of the scaler."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, field_validator

from shared.runtime.keys import STAGES
from shared.scaler.decision import Bounds
from shared.settings import PositiveSeconds, group
from shared.settings_files import Settings


class ScalerSettings(Settings):
    """What is scaled, how far and how fast."""

    model_config = group("CAIRN_SCALER_")

    services: Mapping[str, Bounds] = Field(default_factory=lambda: {"grader": Bounds()})
    """JSON: {"grader": {"min": 1, "max": 8, "slots": 8, "waiting": 16, "oldest_s": 5}, …}."""
    project: str = "cairn"
    """The compose project whose containers these are."""
    every_s: PositiveSeconds = 2.0
    """How often it looks."""
    up_after_s: PositiveSeconds = 10.0
    """Shortest time from one change to the next one up."""
    down_after_s: PositiveSeconds = 60.0
    """How long fewer replicas must have been enough before one goes."""
    dry_run: bool = False
    """Decide and tell, and change nothing."""

    @field_validator("services")
    @classmethod
    def _known(cls, services: Mapping[str, Bounds]) -> Mapping[str, Bounds]:
        if unknown := set(services) - set(STAGES):
            raise ValueError(f"no services: {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
        return services
