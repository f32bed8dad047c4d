"""cairn:ingest -> ingest: one part of a document into the index, a document out of it, or which ones there are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from shared.clients.embeddings import Embedder
from shared.clients.index import (
    GONE,
    NOT_GONE,
    Above,
    AnyOf,
    NoneOf,
    PassageIndex,
    PassageVectors,
    Place,
    Within,
    edition_of,
    encode_passage,
    language_of,
    passage_digest,
    passage_id_of,
    passage_text,
    standing_of,
)
from shared.contracts import Document, Ingest, Ingested, PassageDraft
from shared.ingestion import LISTED_AT_ONCE

_LIVE: Final = AnyOf("state", ("live",))
_REMEMBERED_S: Final = 86_400.0
"""How long a removal is remembered: longer than any message waits for its turn."""


async def ingest(msg: Ingest, *, index: PassageIndex, embedder: Embedder | None, default_collection: str) -> Ingested:
    """Bring the index to what the message says. Parts may come in any order, twice, and after a crash.

    A passage that is in already with the same text is not embedded again. Whether the document is whole is counted in
    the index itself; only then is it found, with its rights, and its other editions leave.
    """
    started = time.perf_counter()
    document = msg.document
    place = Place(document.collection or default_collection, document.tenant, document.document_id)
    if msg.action == "list":
        ended = await _list(msg, index, place)
    elif msg.action == "delete" or not msg.passage_total:
        ended = await _remove(msg, index, place)
    else:
        ended = await _put(msg, index, embedder, place)
    return ended.model_copy(update={"seconds": round(time.perf_counter() - started, 4)})


async def _put(msg: Ingest, index: PassageIndex, embedder: Embedder | None, place: Place) -> Ingested:
    document, edition = msg.document, edition_of(msg.document, msg.passage_total)
    this, other = AnyOf("edition", (edition,)), NoneOf("edition", (edition,))
    later = Above("submitted_at", msg.submitted_at)
    # Of this edition, too: what is live of it later may have other rights.
    if await index.count(place, other, later) or await index.count(place, this, _LIVE, later):
        return Ingested(document_id=document.document_id, status="outdated")
    ids = {passage_id_of(document, draft.ordinal): draft for draft in msg.passages}
    known = await index.digests(place.collection, list(ids))
    new = [draft for passage_id, draft in ids.items() if known.get(passage_id) != passage_digest(document, draft)]
    whole_at_once = not known and len(new) == msg.passage_total
    if new:
        passages = await _encode(document, new, embedder)
        dense = passages[0].dense
        await index.ensure(place.collection, None if dense is None else len(dense))
        await index.put(
            place.collection,
            document,
            msg.passage_total,
            passages,
            submitted_at=msg.submitted_at,
            state="live" if whole_at_once else "staged",
        )
    if await index.count(place, this) < msg.passage_total:
        return Ingested(document_id=document.document_id, status="part", passages=len(msg.passages))
    changed = whole_at_once or await _publish(msg, index, place, edition)
    retired = await index.delete(place, other, NOT_GONE, Within("submitted_at", at_most=msg.submitted_at))
    await index.delete(place, GONE)
    status = "replaced" if retired or (changed and known) else "indexed" if changed else "unchanged"
    return Ingested.model_validate(
        {"document_id": document.document_id, "status": status, "passages": msg.passage_total}
    )


async def _publish(msg: Ingest, index: PassageIndex, place: Place, edition: str) -> bool:
    """Let a whole document be found, as of this message; answers whether that changes anything but its date."""
    standing = standing_of(msg.document, msg.submitted_at)["standing"]
    as_it_is = (AnyOf("edition", (edition,)), _LIVE, AnyOf("standing", (standing,)))
    changes = await index.count(place, *as_it_is) < msg.passage_total
    if changes or not await index.count(place, *as_it_is, Within("submitted_at", at_least=msg.submitted_at)):
        # The date alone matters, too: a version between the two must not win when it comes late.
        await index.publish(place, edition, msg.document, submitted_at=msg.submitted_at)
    return changes


async def _encode(
    document: Document, drafts: Sequence[PassageDraft], embedder: Embedder | None
) -> list[PassageVectors]:
    texts = [passage_text(document, draft) for draft in drafts]
    vectors = await embedder.embed_passages(texts) if embedder is not None else [None] * len(texts)
    return [
        PassageVectors(draft, encode_passage(text, language_of(document, draft)), vector)
        for draft, text, vector in zip(drafts, texts, vectors, strict=True)
    ]


async def _remove(msg: Ingest, index: PassageIndex, place: Place) -> Ingested:
    """Take out what is not later than this message; a document without passages is one to take out, too."""
    removed = await index.delete(place, NOT_GONE, Within("submitted_at", at_most=msg.submitted_at))
    if not await index.count(place, Above("submitted_at", msg.submitted_at)):
        await index.bury(place, submitted_at=msg.submitted_at)
    every = Place(place.collection, place.tenant)
    await index.delete(every, GONE, Within("submitted_at", at_most=msg.submitted_at - _REMEMBERED_S))
    if msg.action == "delete":
        status = "deleted" if removed else "absent"
    else:
        status, removed = ("replaced" if removed else "unchanged"), 0
    return Ingested.model_validate({"document_id": place.document_id, "status": status, "passages": removed})


async def _list(msg: Ingest, index: PassageIndex, place: Place) -> Ingested:
    """The next documents whose ids begin as asked for."""
    every = await index.documents(place.collection, place.tenant)
    found = [name for name in every if name.startswith(msg.document.document_id) and name > msg.after]
    return Ingested(document_id=msg.document.document_id, status="listed", documents=tuple(found[:LISTED_AT_ONCE]))
