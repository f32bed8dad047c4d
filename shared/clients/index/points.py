"""How a passage lies in the index, and which ones an asker may see. Pure, and the same for both engines."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from shared.clients.index.conditions import Place
from shared.contracts import Document, Passage, PassageDraft

DENSE: Final = "dense"
LEXICAL: Final = "lexical"

KEYWORD_FIELDS: Final = ("tenant", "acl", "region", "document_id", "language", "edition", "state", "standing")
NUMBER_FIELDS: Final = ("valid_from_s", "valid_to_s", "submitted_at")
"""Payload fields that filters use; the index keeps each of them searchable."""

State: TypeAlias = Literal["staged", "live", "gone"]
"""Only live passages are found; those of a document that is not whole yet are staged. One that is gone marks where a
document was removed, so that an older version of it that arrives late is not taken for new."""


_NAMESPACE: Final = uuid.UUID("6f1c9f52-6f0e-5d0a-9a3f-2f8a2f3c1c1e")
_OF_PASSAGE: Final = frozenset(Passage.model_fields)


@dataclass(frozen=True, slots=True)
class Stored:
    """How passages are put: by which index version, when their document was read, and whether they are found yet."""

    index_version: str
    submitted_at: float
    state: State = "live"


def passage_text(document: Document, draft: PassageDraft) -> str:
    """What is embedded and searched by words: title, heading path and text, a line each."""
    return "\n".join(line for line in (document.title, draft.section, draft.text) if line)


def language_of(document: Document, draft: PassageDraft) -> str:
    """The passage's own language (ISO 639-1), else the document's; `und` where neither is known."""
    return draft.language if draft.language != "und" else document.language


def edition_of(document: Document, passage_total: int) -> str:
    """Names one state of a document's content. New rights alone are no new edition."""
    return _digest([document.content_hash, document.title, document.uri, passage_total])


def passage_digest(document: Document, draft: PassageDraft) -> str:
    """Equal digests mean that the index holds exactly this passage, its rights and validity apart."""
    return _digest([document.title, document.uri, language_of(document, draft), draft.model_dump(mode="json")])


def passage_id_of(document: Document, ordinal: int) -> str:
    """UUID of a passage. It depends on the tenant: two tenants may have the same document."""
    name = json.dumps([document.tenant, document.document_id, document.content_hash, ordinal], ensure_ascii=False)
    return str(uuid.uuid5(_NAMESPACE, name))


def payload_of(document: Document, passage_total: int, draft: PassageDraft, how: Stored) -> dict[str, Any]:
    """All of a passage that is stored with its vectors."""
    return {
        "document_id": document.document_id,
        "title": document.title,
        "uri": document.uri,
        "section": draft.section,
        "anchor": draft.anchor,
        "page": draft.page,
        "text": draft.text,
        "language": language_of(document, draft),
        "tenant": document.tenant,
        "ordinal": draft.ordinal,
        "content_hash": document.content_hash,
        "edition": edition_of(document, passage_total),
        "digest": passage_digest(document, draft),
        "index_version": how.index_version,
        "state": how.state,
        **standing_of(document, how.submitted_at),
    }


def grave_of(place: Place, submitted_at: float) -> tuple[str, dict[str, Any]]:
    """Id and payload of the mark that a document was removed."""
    name = json.dumps([place.tenant, place.document_id], ensure_ascii=False)
    payload = {"tenant": place.tenant, "document_id": place.document_id, "edition": "", "state": "gone"}
    return str(uuid.uuid5(_NAMESPACE, name)), {**payload, "submitted_at": submitted_at}


def standing_of(document: Document, submitted_at: float) -> dict[str, Any]:
    """What all passages of a document share and what may change while its content stays: rights, owner, validity."""
    facts = {
        "acl": list(document.acl),
        "region": document.region,
        "owner": document.owner,
        "valid_from": document.valid_from,
        "valid_to": document.valid_to,
        "valid_from_s": document.valid_from_s,
        "valid_to_s": document.valid_to_s,
    }
    return {**facts, "standing": _digest(facts), "submitted_at": submitted_at}


def passage_of(passage_id: str, payload: dict[str, Any], similarity: float | None) -> Passage:
    """The passage of a point, not yet scored."""
    fields = {name: value for name, value in payload.items() if name in _OF_PASSAGE}
    return Passage.model_validate({**fields, "passage_id": passage_id, "similarity": similarity})


def _digest(facts: object) -> str:
    text = json.dumps(facts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
