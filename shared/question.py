"""What is asked: the question as clients submit it, and as it travels through the stages."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AwareDatetime, Field, StringConstraints
from pydantic.json_schema import SkipJsonSchema

from shared.job import MAX_QUESTION_CHARS, AnswerForm, Contract, JobId, Name, WebPolicy


class Turn(Contract):
    """One earlier turn of the conversation."""

    role: Literal["user", "assistant"]
    content: Annotated[str, StringConstraints(max_length=MAX_QUESTION_CHARS)]


class Filters(Contract):
    """Narrows the search inside what the asker may read; it never widens it."""

    document_ids: tuple[str, ...] = Field(default=(), max_length=100)
    languages: tuple[str, ...] = Field(default=(), max_length=20)
    valid_at: AwareDatetime | None = None
    """Documents that hold at this moment; those that hold now where it is absent."""


class Question(Contract):
    """What the job is about; it travels unchanged through every stage."""

    question: Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUESTION_CHARS, strip_whitespace=True)]
    collection: Name | None = None
    top_k: int | None = Field(default=None, ge=1, le=50)
    """Passages to grade; as many as the kind of question wants where it is absent."""
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
