"""Settings, read from the environment (or `.env`) once, in each service's `main.py`, and passed down as values.

One small frozen class per group; a stage composes the groups it needs. Every default works with `make demo` and with
compose.yaml. An unset `*_URL` means the embedded part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from shared.settings_files import Settings

PositiveSeconds = Annotated[float, Field(gt=0)]


def group(prefix: str) -> SettingsConfigDict:
    """Configuration of one settings group: frozen, `prefix` + upper-case field name, empty variables ignored."""
    return SettingsConfigDict(
        env_prefix=prefix,
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        validate_default=True,
        hide_input_in_errors=True,  # a rule between two settings would print them all, secrets too
    )


class HomeSettings(Settings):
    """Where the embedded parts keep their data."""

    model_config = group("CAIRN_")

    data_dir: Path = Path(".cairn")


class RedisSettings(Settings):
    """The Redis (or Valkey) server. Unset: the embedded one under the data directory."""

    model_config = group("CAIRN_")

    redis_url: SecretStr | None = None
    topic_prefix: str = "cairn:"


class RuntimeSettings(Settings):
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


class ObserveSettings(Settings):
    """Logs, metrics and health."""

    model_config = group("CAIRN_")

    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """Port of /metrics and /healthz; 0 serves none."""
    metrics_host: str = "127.0.0.1"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"
    """auto: console on a terminal, JSON otherwise."""
    traces: str | None = None
    """OTLP/HTTP endpoint of a collector, for a trace of each job."""


Prices: TypeAlias = Mapping[str, tuple[float, float]]
"""By model: the price of a million prompt tokens, and of a million completion tokens."""


class PriceSettings(Settings):
    """What models cost, for usage and budgets."""

    model_config = group("CAIRN_")

    prices: Prices = Field(default_factory=dict)
    """JSON: {"model": [prompt, completion], …}, in any one currency."""


class FallbackModel(BaseModel):
    """An endpoint to ask where the first one fails. Its key is its own; its model is the first one's unless it says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str
    api_key: SecretStr | None = None
    model: str | None = None


class ModelSettings(Settings):
    """An OpenAI-compatible chat endpoint and how it may be used."""

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str | None = None
    timeout_s: PositiveSeconds = 60.0
    """Of one call."""
    concurrency: Annotated[int, Field(ge=1)] = 16
    """Calls in flight at once, over all jobs of one worker."""
    requests_per_minute: Annotated[int, Field(ge=0)] = 0
    """Over all workers, kept in Redis; 0 is no limit."""
    tokens_per_minute: Annotated[int, Field(ge=0)] = 0
    """Prompt and asked-for tokens, estimated, over all workers; 0 is no limit."""
    hedge: bool = False
    """Ask a second time when a reply is later than 95 % of recent ones."""
    fallbacks: tuple[FallbackModel, ...] = ()
    """JSON: [{"base_url": …, "api_key": …, "model": …}, …], asked in this order where the endpoint fails."""


class LlmSettings(ModelSettings):
    """The OpenAI-compatible chat model. Unset base URL: no model; rules route and the extractive writer answers."""

    model_config = group("CAIRN_LLM_")


class JudgeSettings(ModelSettings):
    """The OpenAI-compatible judge. What is unset is taken from `CAIRN_LLM_*`; without either, the embedded judge."""

    model_config = group("CAIRN_JUDGE_")

    timeout_s: PositiveSeconds = 20.0
    max_tokens: Annotated[int, Field(ge=16)] = 256
    """Of the reply to one passage."""
    batch: Annotated[int, Field(ge=1, le=50)] = 1
    """Passages of one call. More than one saves calls where calls are billed; grades are best one by one."""
    cache_ttl_s: Annotated[float, Field(ge=0)] = 86_400.0
    """How long a grade is remembered; 0 remembers none."""
    cascade: bool = False
    """Ask only about passages that the embedded judge is in doubt about."""
    cascade_low: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Up to this score the embedded judge's grade stands."""
    cascade_high: Annotated[float, Field(ge=0, le=1)] = 0.99
    """From this score on it stands, too."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.cascade_low > self.cascade_high:
            raise ValueError("CAIRN_JUDGE_CASCADE_LOW must not exceed CAIRN_JUDGE_CASCADE_HIGH")
        return self

    def or_else(self, llm: LlmSettings) -> JudgeSettings:
        """These settings, with what is unset taken from the chat model's. A key is only sent to its own endpoint."""
        if self.base_url is not None:
            return self.model_copy(update={"model": self.model or llm.model})
        shared = ("api_key", "model", "requests_per_minute", "tokens_per_minute", "fallbacks")
        taken = {name: getattr(self, name) or getattr(llm, name) for name in shared}
        return self.model_copy(update={"base_url": llm.base_url, **taken})


class EmbedSettings(Settings):
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


class RerankSettings(Settings):
    """The re-ranking endpoint, as Cohere, Jina, vLLM and TEI serve it. Unset base URL: the fused order stands."""

    model_config = group("CAIRN_RERANK_")

    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str = "default"
    timeout_s: PositiveSeconds = 5.0
    concurrency: Annotated[int, Field(ge=1)] = 8


class IndexSettings(Settings):
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


WebProvider = Literal["searxng", "tavily", "brave", "serper", "ddgs"]
_KEYED = ("tavily", "brave", "serper")


class WebSettings(Settings):
    """The web search providers, asked in this order until one finds something. None: the web is off."""

    model_config = group("CAIRN_WEB_")

    provider: Annotated[tuple[WebProvider, ...], NoDecode] = ()
    """Names with commas between; `none` for no provider."""
    base_url: str | None = None
    """SearXNG's address."""
    api_key: SecretStr | None = None
    """Key of the one provider that needs one; with several, each has its own."""
    tavily_api_key: SecretStr | None = None
    brave_api_key: SecretStr | None = None
    serper_api_key: SecretStr | None = None
    timeout_s: PositiveSeconds = 8.0
    """Longest wait for one provider."""
    per_minute: Annotated[int, Field(ge=1)] | None = None
    """Searches that one process sends to one provider in a minute; then the next one is asked."""
    per_day: Annotated[int, Field(ge=1)] | None = None
    safe_search: Literal["off", "moderate", "strict"] = "moderate"
    region: Annotated[str, Field(pattern=r"^[a-z]{2}$")] | None = None
    """Country whose pages are preferred (ISO 3166, lower case). Never the asker's."""
    allow_domains: Annotated[tuple[str, ...], NoDecode] = ()
    """Domains whose pages count, with what is below them; empty for all."""
    deny_domains: Annotated[tuple[str, ...], NoDecode] = ()
    top_k: Annotated[int, Field(ge=1, le=20)] = 5
    """Passages handed to the grader."""

    @field_validator("provider", "allow_domains", "deny_domains", mode="before")
    @classmethod
    def _with_commas(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(name.strip() for name in value.lower().split(",") if name.strip() not in ("", "none"))

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if "searxng" in self.provider and self.base_url is None:
            raise ValueError("CAIRN_WEB_PROVIDER=searxng needs CAIRN_WEB_BASE_URL, e.g. http://searxng:8080")
        for name in self.provider:
            if name in _KEYED and self.key_of(name)[1] is None:
                raise ValueError(f"CAIRN_WEB_PROVIDER={name} needs {self.key_of(name)[0]}")
        return self

    def key_of(self, provider: WebProvider) -> tuple[str, SecretStr | None]:
        """The variable that holds this provider's key, and the key."""
        own: SecretStr | None = getattr(self, f"{provider}_api_key", None)
        if own is None and sum(name in _KEYED for name in self.provider) == 1:
            return "CAIRN_WEB_API_KEY", self.api_key
        return f"CAIRN_WEB_{provider.upper()}_API_KEY", own


def core_count() -> int:
    """Cores this process may use (a container's limit may be lower than the machine's)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
