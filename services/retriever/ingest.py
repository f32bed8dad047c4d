"""cairn:ingest -> ingest: one part of a document into the index, or a document out of it."""

from __future__ import annotations

import time

from shared.clients.embeddings import Embedder
from shared.clients.index import EmbeddedPassage, PassageIndex, lexical
from shared.contracts import Document, Ingest, Ingested, PassageDraft


async def ingest(msg: Ingest, *, index: PassageIndex, embedder: Embedder | None, default_collection: str) -> Ingested:
    """Put the passages of this part in; when the document is whole, its older versions go.

    Parts may come in any order, twice, or after a crash: a passage has the same id each time, and whether the document
    is whole is counted in the index itself. A document that is in already is not embedded again.
    """
    started = time.monotonic()
    document = msg.document
    collection = document.collection or default_collection

    def ended(status: str, passages: int) -> Ingested:
        return Ingested.model_validate(
            {
                "document_id": document.document_id,
                "status": status,
                "passages": passages,
                "seconds": round(time.monotonic() - started, 4),
            }
        )

    if msg.action == "delete":
        present = await index.count(collection, document)
        present += await index.count(collection, document, other_versions=True)
        await index.delete(collection, document)
        return ended("deleted" if present else "absent", present)

    if await index.count(collection, document) == msg.passage_total:
        await index.delete(collection, document, other_versions=True)  # a crash may have left them
        return ended("unchanged", msg.passage_total)
    await index.put(collection, document, await _embedded(document, msg.passages, embedder))
    if await index.count(collection, document) < msg.passage_total:
        return ended("part", len(msg.passages))
    older = await index.count(collection, document, other_versions=True)
    if older:
        await index.delete(collection, document, other_versions=True)
    return ended("replaced" if older else "indexed", msg.passage_total)


async def _embedded(
    document: Document, drafts: tuple[PassageDraft, ...], embedder: Embedder | None
) -> list[EmbeddedPassage]:
    texts = [text_to_embed(document, draft) for draft in drafts]
    vectors = await embedder.embed_passages(texts) if embedder is not None else [None] * len(texts)
    return [
        EmbeddedPassage(draft, lexical.of_passage(text, draft.language), vector)
        for draft, text, vector in zip(drafts, texts, vectors, strict=True)
    ]


def text_to_embed(document: Document, draft: PassageDraft) -> str:
    """The passage with what a reader of the page would know: the document's title and the headings above it."""
    heading = " › ".join(part for part in (document.title, draft.section) if part)
    return f"{heading}\n{draft.text}"
