"""What one job may spend, and who may ask."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from services.gateway.allowance import DailyLimits
from shared.contracts import Budget
from shared.settings import group
from shared.settings_files import Settings


class GatewaySettings(Settings):
    """Budget of each job, and of each tenant's day (UTC); costs are in the currency of CAIRN_PRICES."""

    model_config = group("CAIRN_GATEWAY_")

    model_calls: int = Field(default=60, ge=0)
    tokens: int = Field(default=100_000, ge=0)
    cost: float | None = Field(default=None, ge=0)
    """None is no bound."""
    max_running: int = Field(default=0, ge=0)
    """Jobs at once; more are refused with a time to come back. 0 is no limit."""
    tenant_calls_per_day: int = Field(default=0, ge=0)
    """0 is no limit, here and for tokens and cost."""
    tenant_tokens_per_day: int = Field(default=0, ge=0)
    tenant_cost_per_day: float = Field(default=0.0, ge=0)

    @property
    def budget(self) -> Budget:
        return Budget(model_calls=self.model_calls, tokens=self.tokens, cost=self.cost)

    @property
    def limits(self) -> DailyLimits:
        return DailyLimits(self.tenant_calls_per_day, self.tenant_tokens_per_day, self.tenant_cost_per_day)


class JwtSettings(Settings):
    """How the gateway verifies tokens. Nothing set: every job is the public tenant's, and a token is refused."""

    model_config = group("CAIRN_JWT_")

    secret: SecretStr | None = None
    """Shared secret (HS256)."""
    public_key: str | None = None
    """PEM public key (RS256, ES256)."""
    jwks_url: str | None = None
    algorithms: Annotated[tuple[str, ...], NoDecode] = ()
    """Accepted algorithms, with commas between; empty takes HS256 for a secret, RS256 and ES256 for keys."""
    audience: str | None = None
    issuer: str | None = None
    required: bool = False
    """Refuse jobs without a token."""
    leeway_s: float = Field(default=10.0, ge=0)
    tenant_claim: str = "tenant"
    roles_claim: str = "roles"
    region_claim: str = "region"

    @field_validator("algorithms", mode="before")
    @classmethod
    def _with_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_key_source(self) -> Self:
        sources = [name for name in ("secret", "public_key", "jwks_url") if getattr(self, name)]
        if len(sources) > 1:
            raise ValueError(
                f"set only one of CAIRN_JWT_SECRET, CAIRN_JWT_PUBLIC_KEY and CAIRN_JWT_JWKS_URL, not {sources}"
            )
        if self.required and not sources:
            raise ValueError("CAIRN_JWT_REQUIRED needs CAIRN_JWT_SECRET, CAIRN_JWT_PUBLIC_KEY or CAIRN_JWT_JWKS_URL")
        return self

    @property
    def configured(self) -> bool:
        return bool(self.secret or self.public_key or self.jwks_url)
