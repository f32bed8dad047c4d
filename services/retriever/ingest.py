"""cairn:ingest -> ingest: one part of a document into the index, or a document out of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shared.clients.embeddings import Embedder
from shared.clients.index import (
    PassageIndex,
    PassageVectors,
    edition_of,
    encode_passage,
    language_of,
    passage_digest,
    passage_id_of,
    passage_text,
)
from shared.contracts import Document, Ingest, Ingested, PassageDraft


async def ingest(msg: Ingest, *, index: PassageIndex, embedder: Embedder | None, default_collection: str) -> Ingested:
    """Bring the index to what the message says. Parts may come in any order, twice, and after a crash.

    A passage that is in already, with the same text and rights, is not embedded again. Whether the document is whole
    is counted in the index itself; when it is, everything else of the document leaves.
    """
    started = time.perf_counter()
    ended = await _put(msg, index, embedder, default_collection) if msg.action == "put" else None
    if ended is None:
        ended = await _delete(msg.document, index, default_collection)
    return ended.model_copy(update={"seconds": round(time.perf_counter() - started, 4)})


async def _put(msg: Ingest, index: PassageIndex, embedder: Embedder | None, default_collection: str) -> Ingested:
    document = msg.document
    collection, edition = document.collection or default_collection, edition_of(document, msg.passage_total)
    ids = {passage_id_of(document, draft.ordinal): draft for draft in msg.passages}
    known = await index.digests(collection, list(ids))
    new = [draft for passage_id, draft in ids.items() if known.get(passage_id) != passage_digest(edition, draft)]
    if new:
        passages = await _encode(document, new, embedder)
        dense = passages[0].dense
        await index.ensure(collection, None if dense is None else len(dense))
        await index.put(collection, document, msg.passage_total, passages)
    place = (collection, document.tenant, document.document_id)
    if await index.count(*place, edition) < msg.passage_total:
        return Ingested(document_id=document.document_id, status="part", passages=len(msg.passages))
    retired = await index.retire_others(*place, edition)
    overwritten = any(passage_id_of(document, draft.ordinal) in known for draft in new)
    status = "replaced" if retired or overwritten else "indexed" if new or not msg.passage_total else "unchanged"
    return Ingested.model_validate(
        {"document_id": document.document_id, "status": status, "passages": msg.passage_total}
    )


async def _encode(
    document: Document, drafts: Sequence[PassageDraft], embedder: Embedder | None
) -> list[PassageVectors]:
    texts = [passage_text(document, draft) for draft in drafts]
    vectors = await embedder.embed_passages(texts) if embedder is not None else [None] * len(texts)
    return [
        PassageVectors(draft, encode_passage(text, language_of(document, draft)), vector)
        for draft, text, vector in zip(drafts, texts, vectors, strict=True)
    ]


async def _delete(document: Document, index: PassageIndex, default_collection: str) -> Ingested:
    collection = document.collection or default_collection
    removed = await index.delete_document(collection, document.tenant, document.document_id)
    return Ingested(document_id=document.document_id, status="deleted" if removed else "absent", passages=removed)
