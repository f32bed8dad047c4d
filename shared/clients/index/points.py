"""What a passage is as a point of the index, and which points a reader may see. Pure, and the same for every engine."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.clients.index.lexical import SparseVector
from shared.contracts import ANY_REGION, PUBLIC_ROLE, Document, Filters, Passage, PassageDraft, Principal

DENSE: Final = "dense"
LEXICAL: Final = "lexical"
KEYWORD_FIELDS: Final = ("tenant", "acl", "region", "document_id", "language", "content_hash")
"""Payload fields that filters use; the server indexes them."""

_NAMESPACE: Final = uuid.UUID("6d2b6a0e-52a8-4a86-9f0e-3f6d1d1c7a11")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One query in the forms the arms need. Without `dense` the search is by words alone."""

    lexical: SparseVector
    dense: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class EmbeddedPassage:
    """A passage ready for the index."""

    draft: PassageDraft
    lexical: SparseVector
    dense: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on a payload field: one of `values`, or none of them."""

    field: str
    values: tuple[str, ...]
    negated: bool = False


def readable_by(reader: Principal, filters: Filters) -> list[Where]:
    """The conditions under which a passage may be found: the reader's rights, narrowed by the question's filters."""
    conditions = [
        Where("tenant", (reader.tenant,)),
        Where("acl", (PUBLIC_ROLE, *reader.roles)),
        Where("region", (ANY_REGION,) if reader.region is None else (ANY_REGION, reader.region)),
    ]
    if filters.document_ids:
        conditions.append(Where("document_id", filters.document_ids))
    if filters.languages:
        conditions.append(Where("language", filters.languages))
    return conditions


def version_of(document: Document, *, other_versions: bool) -> list[Where]:
    """The passages of this version of a document, or of its other versions."""
    return [*any_version_of(document), Where("content_hash", (document.content_hash,), negated=other_versions)]


def any_version_of(document: Document) -> list[Where]:
    """All passages of a document. Two tenants may each have one of the same id."""
    return [Where("tenant", (document.tenant,)), Where("document_id", (document.document_id,))]


def point_id(document: Document, ordinal: int) -> str:
    """The same passage of the same version always has the same id, so putting it twice changes nothing."""
    return str(
        uuid.uuid5(
            _NAMESPACE, "\x1f".join((document.tenant, document.document_id, document.content_hash, str(ordinal)))
        )
    )


def payload_of(document: Document, draft: PassageDraft) -> dict[str, Any]:
    """Everything about the passage but its vectors."""
    return {
        "document_id": document.document_id,
        "content_hash": document.content_hash,
        "title": document.title,
        "uri": document.uri,
        "tenant": document.tenant,
        "acl": list(document.acl),
        "region": document.region,
        "owner": document.owner,
        "valid_from": document.valid_from,
        "valid_to": document.valid_to,
        "ordinal": draft.ordinal,
        "section": draft.section,
        "anchor": draft.anchor,
        "page": draft.page,
        "language": draft.language,
        "text": draft.text,
    }


def passage_of(passage_id: str, payload: Mapping[str, Any], score: float, similarity: float | None) -> Passage:
    """The passage a found point stands for."""
    return Passage(
        passage_id=passage_id,
        document_id=payload["document_id"],
        title=payload["title"],
        uri=payload["uri"],
        section=payload["section"],
        anchor=payload["anchor"],
        page=payload["page"],
        text=payload["text"],
        language=payload["language"],
        tenant=payload["tenant"],
        acl=tuple(payload["acl"]),
        region=payload["region"],
        score=score,
        similarity=similarity,
    )


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine of two vectors in [-1, 1]; 0 where one of them has no length."""
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    lengths = (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
    return max(-1.0, min(1.0, dot / lengths)) if lengths else 0.0
