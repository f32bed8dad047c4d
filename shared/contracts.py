"""Every message that crosses a stream: one type per hop, named by a verb, handled by the function of that verb.

    Ask        any client -> gateway      Grade      retriever, websearch -> grader
    Rewrite    gateway, grader, generator -> rewriter
    SearchWeb  grader     -> websearch    Generate   grader, rewriter     -> generator
    Retrieve   rewriter   -> retriever
    Ingest     cairn ingest -> retriever  Answered   the one event: how a job ended

`docs/contract/` holds the JSON Schema and AsyncAPI generated from this file; a test keeps them equal.
On the wire each entry has one field, `data`, with the message as JSON. Scores and grades are floats in [0, 1],
moments are seconds since the epoch, durations are seconds.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field

from shared.ingestion import Document, Ingest, Ingested, PassageDraft
from shared.job import (
    ANY_REGION,
    MAX_QUESTION_CHARS,
    PUBLIC_ROLE,
    PUBLIC_TENANT,
    AnswerForm,
    Budget,
    Contract,
    Header,
    JobId,
    Name,
    Origin,
    Principal,
    Relevance,
    Role,
    Route,
    Score,
    StageTiming,
    StageUsage,
    Status,
    TrailPassage,
    TrailStep,
    Verdict,
    WebPolicy,
)
from shared.passages import Evidence, Passage, PassageGrade, WebPage
from shared.question import Ask, Filters, Question, Turn

__all__ = [
    "ANY_REGION",
    "COMMANDS",
    "MAX_QUESTION_CHARS",
    "PUBLIC_ROLE",
    "PUBLIC_TENANT",
    "AnswerForm",
    "Answered",
    "Ask",
    "Budget",
    "Citation",
    "Command",
    "Contract",
    "Document",
    "Evidence",
    "Filters",
    "Generate",
    "Grade",
    "Header",
    "Ingest",
    "Ingested",
    "JobId",
    "Name",
    "Origin",
    "Passage",
    "PassageDraft",
    "PassageGrade",
    "Principal",
    "Question",
    "Relevance",
    "Retrieve",
    "Rewrite",
    "Role",
    "Route",
    "Score",
    "SearchWeb",
    "StageTiming",
    "StageUsage",
    "Status",
    "TrailPassage",
    "TrailStep",
    "Turn",
    "Verdict",
    "WebPage",
    "WebPolicy",
]


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


class Rewrite(Command):
    """Route the question and write search queries; on a later hop, for what is still missing."""

    inbox: ClassVar[str] = "rewriter"

    missing: str | None = None
    """What the answer still needs, in words to search for; empty on a hop where nobody could say."""
    verdict: Verdict | None = None
    """That of the hop before."""
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
    collection: Name | None = None
    """Where to search; the collection that the question names, or the retriever's default, where it is absent."""
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
    """Answer from this evidence with citations, or abstain; or say what needs no search."""

    inbox: ClassVar[str] = "generator"

    route: Route
    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()
    small_talk: bool = False
    """A greeting or thanks: nothing was searched, and nothing is claimed."""
    clarification: str = ""
    """What to ask back, where the question can't be understood."""

    def summary(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "evidence": len(self.evidence)}

    def evidence_so_far(self) -> tuple[Evidence, ...]:
        return self.evidence


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


COMMANDS: tuple[type[Command], ...] = (Rewrite, Retrieve, Grade, SearchWeb, Generate)
