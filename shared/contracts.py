"""Every message that crosses a stream: one type per hop, named by a verb, handled by the function of that verb.

    Ask        any client -> gateway      Grade      retriever, websearch -> grader
    Rewrite    gateway    -> rewriter     SearchWeb  grader               -> websearch
    Retrieve   rewriter   -> retriever    Generate   grader, rewriter     -> generator
    Ingest     cairn ingest -> retriever  Answered   the one event: how a job ended

`docs/contract/` holds the JSON Schema and AsyncAPI generated from this file; a test keeps them equal.
On the wire each entry has one field, `data`, with the message as JSON. Scores and grades are floats in [0, 1],
moments are seconds since the epoch, durations are seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.json_schema import SkipJsonSchema

PUBLIC_TENANT = "public"
PUBLIC_ROLE = "public"
"""The role everybody has; a passage without an ACL carries it."""
ANY_REGION = "*"

MAX_QUESTION_CHARS = 8_000

JobId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$")]
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


# --- what a client sends -------------------------------------------------------------------------------------------


class Turn(Contract):
    """One earlier turn of the conversation."""

    role: Literal["user", "assistant"]
    content: Annotated[str, StringConstraints(max_length=MAX_QUESTION_CHARS)]


class Filters(Contract):
    """Narrows the search inside what the asker may read; it never widens it."""

    document_ids: tuple[str, ...] = Field(default=(), max_length=100)
    languages: tuple[str, ...] = Field(default=(), max_length=20)


class Question(Contract):
    """What the job is about; it travels unchanged through every stage."""

    question: Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUESTION_CHARS, strip_whitespace=True)]
    collection: Name | None = None
    top_k: int = Field(default=8, ge=1, le=50)
    max_hops: int = Field(default=1, ge=1, le=3)
    web: WebPolicy = "auto"
    answer: AnswerForm = "full"
    history: tuple[Turn, ...] = Field(default=(), max_length=20)
    language: Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")] | None = None
    filters: Filters = Filters()


class Ask(Question):
    """A question submitted to `cairn:gateway` by any Redis client.

    `job_id` is the idempotency key: the same id again gives the same outcome and no second run.
    `token` is a JWT; it stays in the gateway and never travels on.
    """

    inbox: ClassVar[str] = "gateway"

    job_id: JobId | None = None
    """Made up from the entry's id if absent."""
    deadline_s: float = Field(default=60.0, gt=0, le=3600)
    token: str | None = Field(default=None, max_length=16_384, repr=False)
    entry_id: SkipJsonSchema[str] = ""
    """Id of the entry that carried the question; set by the gateway, refused from clients."""


# --- what every command carries ------------------------------------------------------------------------------------


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


class StageTiming(Contract):
    """Queue wait and work of one delivery, in seconds."""

    stage: str
    hop: int
    wait_s: float
    work_s: float


class StageUsage(Contract):
    """Model calls and tokens of one stage; `estimated` where the endpoint reported no usage."""

    stage: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False


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
            changes["budget"] = Budget(
                model_calls=max(0, self.budget.model_calls - usage.calls),
                tokens=max(0, self.budget.tokens - usage.prompt_tokens - usage.completion_tokens),
            )
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


class Command(Contract):
    """A message between stages. `inbox` names the stage whose stream it goes to."""

    inbox: ClassVar[str]

    header: Header
    asked: Question

    def summary(self) -> dict[str, Any]:
        """What somebody who follows the job wants to see of this step; no texts of passages."""
        return {}

    def evidence_so_far(self) -> tuple[Evidence, ...]:
        """The best evidence known when this command was published: what a timed-out job can still cite."""
        return ()


# --- passages and grades -------------------------------------------------------------------------------------------


class Passage(Contract):
    """A retrieved unit of a document, or of a web page."""

    passage_id: str
    document_id: str
    title: str
    uri: str
    section: str = ""
    """Heading path, outermost first, joined by ` › `."""
    anchor: str | None = None
    page: int | None = None
    """1-based page of a paged document."""
    text: str
    language: str = "und"
    tenant: Name = PUBLIC_TENANT
    acl: tuple[Role, ...] = (PUBLIC_ROLE,)
    region: str = ANY_REGION
    origin: Origin = "index"
    query: int = 0
    """Index of the query that brought it."""
    score: float = 0.0
    """Fused retrieval score, comparable within one search only."""
    similarity: float | None = None
    """Cosine of question and passage in [-1, 1], where the search had vectors."""


class WebPage(Contract):
    """A page that a web search found: where it is, what it is called, and the search engine's excerpt of it."""

    url: str
    title: str
    snippet: str


class PassageGrade(Contract):
    """The judge's word on one passage. Without a score it is ungraded, which is never the same as irrelevant."""

    score: Score | None = None
    relevance: Relevance | None = None
    reason: str = ""


class Evidence(Contract):
    """A passage that survived grading, and the strips of it worth reading, each word for word from its text."""

    passage: Passage
    grade: PassageGrade
    strips: tuple[str, ...]


# --- commands ------------------------------------------------------------------------------------------------------


class Rewrite(Command):
    """Route the question and write search queries; on a later hop, for what is still missing."""

    inbox: ClassVar[str] = "rewriter"

    missing: str | None = None
    evidence: tuple[Evidence, ...] = ()

    def summary(self) -> dict[str, Any]:
        return {"missing": self.missing} if self.missing else {}

    def evidence_so_far(self) -> tuple[Evidence, ...]:
        return self.evidence


class Retrieve(Command):
    """Search the index with these queries, within the asker's rights."""

    inbox: ClassVar[str] = "retriever"

    route: Route
    queries: tuple[str, ...] = Field(min_length=1, max_length=4)
    hyde: str | None = None
    evidence: tuple[Evidence, ...] = ()

    def summary(self) -> dict[str, Any]:
        return {"route": self.route, "queries": self.queries}

    def evidence_so_far(self) -> tuple[Evidence, ...]:
        return self.evidence


class Grade(Command):
    """Judge these passages, together with what earlier searches already brought, and decide."""

    inbox: ClassVar[str] = "grader"

    route: Route
    queries: tuple[str, ...] = Field(min_length=1, max_length=4)
    passages: tuple[Passage, ...]
    evidence: tuple[Evidence, ...] = ()
    searched_web: bool = False

    def summary(self) -> dict[str, Any]:
        return {"passages": len(self.passages)}

    def evidence_so_far(self) -> tuple[Evidence, ...]:
        return self.evidence


class SearchWeb(Command):
    """Search the web: what the index gave was not enough."""

    inbox: ClassVar[str] = "websearch"

    route: Route
    queries: tuple[str, ...] = Field(min_length=1, max_length=4)
    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()

    def summary(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "kept": len(self.evidence)}

    def evidence_so_far(self) -> tuple[Evidence, ...]:
        return self.evidence


class Generate(Command):
    """Answer from this evidence with citations, or abstain."""

    inbox: ClassVar[str] = "generator"

    route: Route
    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()

    def summary(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "evidence": len(self.evidence)}

    def evidence_so_far(self) -> tuple[Evidence, ...]:
        return self.evidence


# --- the event -----------------------------------------------------------------------------------------------------


class Citation(Contract):
    """`[n]` in the answer. `quote` stands word for word in the passage."""

    n: int = Field(ge=1)
    passage_id: str
    document_id: str
    title: str
    uri: str
    section: str
    quote: str


class Answered(Contract):
    """How a job ended: the JSON in `cairn:results`, in the job's hash and in its terminal event."""

    job_id: str
    entry_id: str
    status: Status
    answer: str = ""
    citations: tuple[Citation, ...] = ()
    confidence: Score = 0.0
    verdict: Verdict | None = None
    writer: str = ""
    """The model that wrote the answer; `extractive` where sentences were quoted, not written."""
    language: str = "en"
    error: str = ""
    """Why it failed, for `failed`."""
    degraded: tuple[str, ...] = ()
    trail: tuple[TrailStep, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    usage: tuple[StageUsage, ...] = ()
    timings: tuple[StageTiming, ...] = ()
    hops: int = 0
    seconds: float = 0.0

    @classmethod
    def ending(cls, header: Header, status: Status, *, now: float, **fields: Any) -> Self:
        """The outcome of the job with this header; `fields` are the ones the header does not know."""
        return cls(
            job_id=header.job_id,
            entry_id=header.entry_id,
            status=status,
            language=header.language,
            degraded=header.degraded,
            trail=header.trail,
            versions=header.versions,
            usage=header.usage,
            timings=header.timings,
            hops=header.hop + 1,
            seconds=round(max(0.0, now - header.submitted_at), 4),
            **fields,
        )


# --- ingestion -----------------------------------------------------------------------------------------------------


class Document(Contract):
    """The source of passages. `document_id` is stable over versions, `content_hash` changes with the content."""

    document_id: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    title: str
    uri: str
    content_hash: str
    collection: Name | None = None
    tenant: Name = PUBLIC_TENANT
    acl: tuple[Role, ...] = (PUBLIC_ROLE,)
    region: str = ANY_REGION
    language: str = "und"
    owner: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None


class PassageDraft(Contract):
    """A passage before it is embedded."""

    ordinal: int = Field(ge=0)
    section: str = ""
    anchor: str | None = None
    page: int | None = None
    text: Annotated[str, StringConstraints(min_length=1)]
    language: str = "und"


class Ingest(Contract):
    """One part of a document for the index, or its removal.

    A document of more passages than one message may hold travels in `parts` messages; the old version leaves the
    index when all parts of the new one are in.
    """

    inbox: ClassVar[str] = "ingest"

    run_id: JobId
    action: Literal["put", "delete"] = "put"
    document: Document
    part: int = Field(default=0, ge=0)
    parts: int = Field(default=1, ge=1)
    passage_total: int = Field(default=0, ge=0)
    passages: tuple[PassageDraft, ...] = ()


class Ingested(Contract):
    """What became of one `Ingest`, as an event of its run."""

    document_id: str
    status: Literal["indexed", "replaced", "unchanged", "part", "deleted", "absent", "failed"]
    passages: int = 0
    seconds: float = 0.0
    error: str = ""


COMMANDS: tuple[type[Command], ...] = (Rewrite, Retrieve, Grade, SearchWeb, Generate)
