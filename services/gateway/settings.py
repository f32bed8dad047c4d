"""What one job may spend."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from shared.contracts import Budget
from shared.settings import group


class GatewaySettings(BaseSettings):
    """Budget of each job."""

    model_config = group("CAIRN_GATEWAY_")

    model_calls: int = Field(default=60, ge=0)
    tokens: int = Field(default=100_000, ge=0)

    @property
    def budget(self) -> Budget:
        return Budget(model_calls=self.model_calls, tokens=self.tokens)
