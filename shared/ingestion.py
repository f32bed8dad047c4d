"""Documents on their way into the index."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from datetime import time as clock
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from shared.job import ANY_REGION, PUBLIC_ROLE, PUBLIC_TENANT, Contract, JobId, Name, Role

LISTED_AT_ONCE: Final = 500
"""Documents that one `list` names at most."""


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
    """First moment at which it holds: an ISO 8601 date or date and time, UTC where it names no zone."""
    valid_to: str | None = None
    """Last moment at which it holds; a date holds to its end."""

    @field_validator("valid_from", "valid_to")
    @classmethod
    def _a_moment(cls, value: str | None) -> str | None:
        if value is not None:
            moment_s(value, end=False)
        return value

    @model_validator(mode="after")
    def _holds_at_some_time(self) -> Self:
        if self.valid_from and self.valid_to and self.valid_from_s > self.valid_to_s:
            raise ValueError(f"valid_from {self.valid_from} is after valid_to {self.valid_to}")
        return self

    @property
    def valid_from_s(self) -> float:
        """Seconds since the epoch; long ago where it is open."""
        return moment_s(self.valid_from, end=False) if self.valid_from else -_EVER_S

    @property
    def valid_to_s(self) -> float:
        """Seconds since the epoch; far ahead where it is open."""
        return moment_s(self.valid_to, end=True) if self.valid_to else _EVER_S


_EVER_S: Final = 1e11


def moment_s(text: str, *, end: bool) -> float:
    """Seconds since the epoch of an ISO 8601 date or date and time; a date is its first moment, or its last one."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is no ISO 8601 date such as 2026-03-31 or 2026-03-31T18:00+02:00") from None
    else:
        moment = datetime.combine(day, clock.max if end else clock.min)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class PassageDraft(Contract):
    """A passage before it is embedded."""

    ordinal: int = Field(ge=0)
    section: str = ""
    anchor: str | None = None
    page: int | None = None
    text: Annotated[str, StringConstraints(min_length=1)]
    language: str = "und"


class Ingest(Contract):
    """One part of a document for the index, its removal, or a question which documents there are.

    A document of more passages than one message may hold travels in `parts` messages; it is searchable when all parts
    of it are in, and then its old version is not any more.
    """

    inbox: ClassVar[str] = "ingest"

    run_id: JobId
    action: Literal["put", "delete", "list"] = "put"
    """list: the documents of this tenant and collection whose ids begin with `document.document_id`."""
    document: Document
    part: int = Field(default=0, ge=0)
    parts: int = Field(default=1, ge=1)
    passage_total: int = Field(default=0, ge=0)
    passages: tuple[PassageDraft, ...] = ()
    submitted_at: float = Field(default_factory=time.time)
    """When the document was read; of two versions on their way the later one wins, whichever arrives last."""
    after: str = ""
    """list: only ids after this one."""


class Ingested(Contract):
    """What became of one `Ingest`, as an event of its run."""

    document_id: str
    status: Literal["indexed", "replaced", "unchanged", "outdated", "part", "deleted", "absent", "listed", "failed"]
    """outdated: a later version is in already. part: more parts are missing."""
    passages: int = 0
    seconds: float = 0.0
    error: str = ""
    documents: tuple[str, ...] = ()
    """listed: ids in order, at most `LISTED_AT_ONCE`; fewer mean that there are no more."""
