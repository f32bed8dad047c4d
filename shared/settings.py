"""Settings, read from the environment (or `.env`) once, in each service's `main.py`, and passed down as values.

One small frozen class per group; a stage composes the groups it needs. Every default works with `make demo` and with
compose.yaml. An unset `*_URL` means the embedded part.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PositiveSeconds = Annotated[float, Field(gt=0)]


def group(prefix: str) -> SettingsConfigDict:
    """Configuration of one settings group: frozen, `prefix` + upper-case field name, empty variables ignored."""
    return SettingsConfigDict(
        env_prefix=prefix, env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True, validate_default=True
    )


class HomeSettings(BaseSettings):
    """Where the embedded parts keep their data."""

    model_config = group("CAIRN_")

    data_dir: Path = Path(".cairn")


class RedisSettings(BaseSettings):
    """The Redis (or Valkey) server. Unset: the embedded one under the data directory."""

    model_config = group("CAIRN_")

    redis_url: SecretStr | None = None
    topic_prefix: str = "cairn:"


class RuntimeSettings(BaseSettings):
    """How workers take, keep, retry and finish deliveries."""

    model_config = group("CAIRN_")

    max_workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Deliveries worked on at once by one process; None takes the stage's own default."""
    claim_after_s: PositiveSeconds = 8.0
    """A delivery whose worker gave no sign for this long is taken over by another one."""
    heartbeat_s: PositiveSeconds = 1.0
    """How often a worker renews its claims, and sees that a job was cancelled."""
    block_s: Annotated[float, Field(ge=0.01)] = 1.0
    """Longest wait of one read; must stay below redis-py's socket timeout."""
    grace_s: PositiveSeconds = 20.0
    """Time a stopping worker gives the handlers in hand before it hands their deliveries back."""
    max_deliveries: Annotated[int, Field(ge=1)] = 5
    """Hand-overs of one message before it is a dead letter: what stops a message that kills its worker."""
    backoff_initial_s: PositiveSeconds = 0.2
    backoff_max_s: PositiveSeconds = 10.0
    job_ttl_s: Annotated[float, Field(ge=1)] = 86_400.0
    """How long a job's hash and events stay after its end."""
    results_max_len: Annotated[int, Field(ge=1)] = 100_000
    results_max_age_s: PositiveSeconds = 7 * 86_400.0
    dead_max_len: Annotated[int, Field(ge=1)] = 10_000
    max_message_bytes: Annotated[int, Field(ge=10_000)] = 1_048_576
    reap_every_s: PositiveSeconds = 0.5
    """How often the gateway looks for jobs past their deadline."""
    parent_pid: int | None = None
    """Stop when this process is no longer the parent. `cairn up` sets it: nothing outlives a killed launcher."""
    consumer_idle_s: PositiveSeconds = 600.0
    """A consumer that holds nothing and gave no sign for this long is removed."""

    @model_validator(mode="after")
    def _in_proportion(self) -> Self:
        # Three missed heartbeats must fit into the claim time, or a busy event loop loses live deliveries.
        if self.heartbeat_s >= self.claim_after_s / 3:
            raise ValueError("CAIRN_HEARTBEAT_S must be less than a third of CAIRN_CLAIM_AFTER_S")
        if self.backoff_initial_s > self.backoff_max_s:
            raise ValueError("CAIRN_BACKOFF_INITIAL_S must not exceed CAIRN_BACKOFF_MAX_S")
        if self.block_s > 4.0:
            raise ValueError("CAIRN_BLOCK_S must be at most 4: redis-py gives up on a silent socket after 5 s")
        return self


class ObserveSettings(BaseSettings):
    """Logs, metrics and health."""

    model_config = group("CAIRN_")

    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port of /metrics and /healthz; 0 serves none."""
    metrics_host: str = "127.0.0.1"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, JSON otherwise."""


class LlmSettings(BaseSettings):
    """The OpenAI-compatible chat model. Unset base URL: no model; rules route and the extractive writer answers."""

    model_config = group("CAIRN_LLM_")

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str = "default"
    timeout_s: PositiveSeconds = 60.0
    concurrency: Annotated[int, Field(ge=1)] = 16


class JudgeSettings(BaseSettings):
    """The OpenAI-compatible judge. What is unset is taken from `CAIRN_LLM_*`; without either, the embedded judge."""

    model_config = group("CAIRN_JUDGE_")

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str | None = None
    concurrency: Annotated[int, Field(ge=1)] = 16
    """Judge calls in flight at once, over all jobs of one worker."""
    timeout_s: PositiveSeconds = 20.0
    max_tokens: Annotated[int, Field(ge=16)] = 256

    def or_else(self, llm: LlmSettings) -> JudgeSettings:
        """These settings, with what is unset taken from the chat model's. A key is only sent to its own endpoint."""
        if self.base_url is not None:
            return self.model_copy(update={"model": self.model or llm.model})
        return self.model_copy(
            update={
                "base_url": llm.base_url,
                "api_key": self.api_key or llm.api_key,
                "model": self.model or llm.model,
            }
        )


class EmbedSettings(BaseSettings):
    """The OpenAI-compatible embeddings endpoint. Unset base URL: the embedded multilingual-e5-small."""

    model_config = group("CAIRN_EMBED_")

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str = "default"
    timeout_s: PositiveSeconds = 30.0
    batch_size: Annotated[int, Field(ge=1, le=2048)] = 32
    processes: Annotated[int, Field(ge=0)] = 0
    """Processes of the embedded embedder for passages; 0 takes one per core."""
    query_prefix: str = ""
    passage_prefix: str = ""


class RerankSettings(BaseSettings):
    """The re-ranking endpoint, as Cohere, Jina, vLLM and TEI serve it. Unset base URL: the fused order stands."""

    model_config = group("CAIRN_RERANK_")

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str = "default"
    timeout_s: PositiveSeconds = 5.0
    concurrency: Annotated[int, Field(ge=1)] = 8


class IndexSettings(BaseSettings):
    """Qdrant: a server's URL, or a directory for the embedded engine (default: under the data directory)."""

    model_config = group("CAIRN_")

    qdrant_url: str | None = None
    qdrant_api_key: SecretStr | None = None
    qdrant_path: Path | None = None
    qdrant_quantization: Literal["none", "scalar", "binary"] = "none"
    """How a server keeps the vectors it searches first; the full ones re-score what was found."""
    qdrant_on_disk: bool = False
    """Whether a server keeps full vectors and payloads on disk instead of in memory."""
    collection: str = "documents"
    """Where documents and questions go that name no collection."""


class WebSettings(BaseSettings):
    """The web search provider."""

    model_config = group("CAIRN_WEB_")

    provider: Literal["none", "searxng"] = "none"
    base_url: str | None = None
    api_key: SecretStr | None = None
    timeout_s: PositiveSeconds = 8.0
    top_k: Annotated[int, Field(ge=1, le=20)] = 5

    @model_validator(mode="after")
    def _provider_has_address(self) -> Self:
        if self.provider == "searxng" and self.base_url is None:
            raise ValueError("CAIRN_WEB_PROVIDER=searxng needs CAIRN_WEB_BASE_URL, e.g. http://searxng:8080")
        return self


class JwtSettings(BaseSettings):
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


def core_count() -> int:
    """Cores this process may use (a container's limit may be lower than the machine's)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
