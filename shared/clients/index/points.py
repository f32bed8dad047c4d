"""How a passage lies in the index, and which ones an asker may see. Pure, and the same for both engines."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from shared.contracts import ANY_REGION, PUBLIC_ROLE, Document, Filters, Passage, PassageDraft, Principal

DENSE: Final = "dense"
LEXICAL: Final = "lexical"

KEYWORD_FIELDS: Final = ("tenant", "acl", "region", "document_id", "language", "edition")
"""Payload fields that filters use; the index keeps each of them searchable."""

Conditions: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Field and admitted values; a passage must meet all of them with at least one value each."""

_NAMESPACE: Final = uuid.UUID("6f1c9f52-6f0e-5d0a-9a3f-2f8a2f3c1c1e")
_NOT_IN_PASSAGE: Final = frozenset(
    {"content_hash", "ordinal", "owner", "valid_from", "valid_to", "indexed_at", "edition", "digest"}
)


@dataclass(frozen=True, slots=True)
class Rights:
    """What an asker may read, as the search filter states it: the same rule as `Principal.may_read`."""

    tenant: str
    roles: tuple[str, ...]
    """Holds the public role."""
    region: str | None

    @classmethod
    def of(cls, principal: Principal) -> Rights:
        return cls(principal.tenant, tuple(dict.fromkeys((PUBLIC_ROLE, *principal.roles))), principal.region)

    @property
    def conditions(self) -> Conditions:
        regions = (ANY_REGION,) if self.region is None else tuple(dict.fromkeys((ANY_REGION, self.region)))
        return (("tenant", (self.tenant,)), ("acl", self.roles), ("region", regions))


def narrowing(filters: Filters) -> Conditions:
    """The asker's own filters as conditions; they only ever narrow."""
    wished = (("document_id", filters.document_ids), ("language", filters.languages))
    return tuple((field, values) for field, values in wished if values)


def of_document(tenant: str, document_id: str, edition: str | None = None) -> Conditions:
    """The passages of one document of one tenant, of one edition or of all."""
    every: Conditions = (("tenant", (tenant,)), ("document_id", (document_id,)))
    return every if edition is None else (*every, ("edition", (edition,)))


def passage_text(document: Document, draft: PassageDraft) -> str:
    """What is embedded and searched by words: title, heading path and text, a line each."""
    return "\n".join(line for line in (document.title, draft.section, draft.text) if line)


def language_of(document: Document, draft: PassageDraft) -> str:
    """The passage's own language (ISO 639-1), else the document's; `und` where neither is known."""
    return draft.language if draft.language != "und" else document.language


def edition_of(document: Document, passage_total: int) -> str:
    """Names one state of a document: its content, and all that is stored with it (rights, title, validity …).

    So a change of the ACL alone is a new edition, though the content hash stays.
    """
    facts = document.model_dump(mode="json", exclude={"collection"})
    return _digest([facts, passage_total])


def passage_digest(edition: str, draft: PassageDraft) -> str:
    """Equal digests mean that the index holds exactly this passage."""
    return _digest([edition, draft.model_dump(mode="json")])


def passage_id_of(document: Document, ordinal: int) -> str:
    """UUID of a passage. It depends on the tenant: two tenants may have the same document."""
    name = json.dumps([document.tenant, document.document_id, document.content_hash, ordinal], ensure_ascii=False)
    return str(uuid.uuid5(_NAMESPACE, name))


def payload_of(document: Document, passage_total: int, draft: PassageDraft, *, indexed_at: float) -> dict[str, Any]:
    """All of a passage that is stored with its vectors; `indexed_at` is in seconds since the epoch."""
    edition = edition_of(document, passage_total)
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
        "acl": list(document.acl),
        "region": document.region,
        "content_hash": document.content_hash,
        "ordinal": draft.ordinal,
        "owner": document.owner,
        "valid_from": document.valid_from,
        "valid_to": document.valid_to,
        "edition": edition,
        "digest": passage_digest(edition, draft),
        "indexed_at": indexed_at,
    }


def passage_of(passage_id: str, payload: dict[str, Any]) -> Passage:
    """The passage of a point, not yet scored."""
    fields = {name: value for name, value in payload.items() if name not in _NOT_IN_PASSAGE}
    return Passage.model_validate({"passage_id": passage_id, **fields})


def _digest(facts: object) -> str:
    text = json.dumps(facts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
