"""Documents on their way into the index."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from shared.job import ANY_REGION, PUBLIC_ROLE, PUBLIC_TENANT, Contract, JobId, Name, Role


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
