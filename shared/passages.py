"""What is found, graded and cited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shared.job import ANY_REGION, PUBLIC_ROLE, PUBLIC_TENANT, Contract, Name, Origin, Relevance, Role, Score


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
    baseline: float | None = None
    """Cosine that any text in the passage's language has with the question, where languages were measured."""
    fetched_at: float | None = None
    """Moment a web page was fetched. Absent for passages of the index, and for a search engine's excerpt of a page."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """What one arm of a search found for one query, best first; each `score` is the arm's own."""

    arm: Literal["dense", "lexical"]
    passages: Sequence[Passage]


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
