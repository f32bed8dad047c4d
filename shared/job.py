"""What belongs to a job and travels with it: who asks, until when, what it may spend, and the trail it leaves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

if TYPE_CHECKING:
    from shared.passages import Passage

PUBLIC_TENANT = "public"
PUBLIC_ROLE = "public"
"""The role everybody has; a passage without an ACL carries it."""
ANY_REGION = "*"

MAX_QUESTION_CHARS = 8_000

JobId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$")]
"""No colon: `job:a:events` must not be the hash of a job `a:events`."""
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Role = Annotated[str, StringConstraints(min_length=1, max_length=64, strip_whitespace=True)]
Score = Annotated[float, Field(ge=0.0, le=1.0)]

Route = Literal["technical", "factual", "comparative", "procedural"]
Verdict = Literal["correct", "ambiguous", "incorrect"]
Relevance = Literal["relevant", "partial", "irrelevant"]
Origin = Literal["index", "web"]
WebPolicy = Literal["auto", "off", "only"]
AnswerForm = Literal["full", "citations"]
Status = Literal["answered", "abstained", "citations", "failed", "cancelled", "timed_out"]


class Contract(BaseModel):
    """Frozen, and strict about unknown fields: a typo must not be silently ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Principal(Contract):
    """Who asks, from the verified token. It becomes a filter inside the search and never enters a prompt."""

    tenant: Name = PUBLIC_TENANT
    subject: str | None = None
    roles: tuple[Role, ...] = ()
    region: str | None = None

    def may_read(self, passage: Passage) -> bool:
        """Whether tenant, roles and region admit this passage: the same rule as the search filter, checked again."""
        return (
            passage.tenant == self.tenant
            and not {PUBLIC_ROLE, *self.roles}.isdisjoint(passage.acl)
            and passage.region in (ANY_REGION, self.region)
        )


class Budget(Contract):
    """What this job may still spend on models."""

    model_calls: int = Field(default=60, ge=0)
    tokens: int = Field(default=100_000, ge=0)
    cost: float | None = Field(default=None, ge=0)
    """In the currency of the price table; None is no bound."""

    @property
    def spent(self) -> bool:
        """Whether no model may be called any more."""
        return self.model_calls == 0 or self.tokens == 0 or self.cost == 0

    def less(self, usage: StageUsage) -> Budget:
        """What is left of it after this."""
        return Budget(
            model_calls=max(0, self.model_calls - usage.calls),
            tokens=max(0, self.tokens - usage.prompt_tokens - usage.completion_tokens),
            cost=None if self.cost is None else max(0.0, self.cost - (usage.cost or 0.0)),
        )


class StageTiming(Contract):
    """Queue wait and work of one delivery, in seconds."""

    stage: str
    hop: int
    wait_s: float
    work_s: float


class StageUsage(Contract):
    """Model calls and tokens of one stage; `estimated` where the endpoint reported no usage."""

    stage: str
    model: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False
    cost: float | None = None
    """In the currency of the price table (CAIRN_PRICES); None without a price for this model."""

    @classmethod
    def total(cls, stage: str, parts: Iterable[StageUsage]) -> StageUsage:
        """What these come to together; a cost that is not known counts as none."""
        parts = list(parts)
        costs = [each.cost for each in parts if each.cost is not None]
        return cls(
            stage=stage,
            model=" or ".join(dict.fromkeys(each.model for each in parts if each.model)),
            calls=sum(each.calls for each in parts),
            prompt_tokens=sum(each.prompt_tokens for each in parts),
            completion_tokens=sum(each.completion_tokens for each in parts),
            estimated=any(each.estimated for each in parts),
            cost=sum(costs) if costs else None,
        )


class TrailPassage(Contract):
    """A passage as the trail remembers it: which, from where, how it scored and was graded. Never its text."""

    passage_id: str
    origin: Origin
    score: float
    query: int = 0
    """Index of the query that brought it."""
    grade: Score | None = None
    relevance: Relevance | None = None
    reason: str = ""


class TrailStep(Contract):
    """One search and what was made of it."""

    hop: int
    route: Route | None = None
    queries: tuple[str, ...] = ()
    passages: tuple[TrailPassage, ...] = ()
    verdict: Verdict | None = None
    reason: str = ""


class Header(Contract):
    """What belongs to the job and not to one stage."""

    job_id: JobId
    entry_id: str
    """Id of the entry in `cairn:gateway` that started the job."""
    principal: Principal = Principal()
    submitted_at: float
    deadline: float
    hop: int = 0
    budget: Budget = Budget()
    language: str = "en"
    """Language of the question, in which the answer is written (ISO 639-1)."""
    traceparent: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    """Prompt and index versions used so far, by name."""
    trail: tuple[TrailStep, ...] = ()
    timings: tuple[StageTiming, ...] = ()
    usage: tuple[StageUsage, ...] = ()
    degraded: tuple[str, ...] = ()
    """What was done without, and why; shown in the outcome."""

    def updated(
        self,
        *,
        step: TrailStep | None = None,
        usage: StageUsage | None = None,
        timing: StageTiming | None = None,
        degraded: tuple[str, ...] = (),
        versions: dict[str, str] | None = None,
        language: str | None = None,
        hop: int | None = None,
    ) -> Self:
        """This header with additions; spent calls and tokens come off the budget."""
        changes: dict[str, Any] = {}
        if step is not None:
            changes["trail"] = (*self.trail, step)
        if usage is not None and usage.calls:
            changes["usage"] = (*self.usage, usage)
            changes["budget"] = self.budget.less(usage)
        if timing is not None:
            changes["timings"] = (*self.timings, timing)
        if degraded:
            changes["degraded"] = tuple(dict.fromkeys((*self.degraded, *degraded)))
        if versions:
            changes["versions"] = {**self.versions, **versions}
        if language is not None:
            changes["language"] = language
        if hop is not None:
            changes["hop"] = hop
        return self.model_copy(update=changes)
