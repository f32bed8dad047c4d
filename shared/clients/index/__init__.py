"""The index of passages: one Protocol, Qdrant's own engine in this process (`edge`), and a Qdrant server (`server`).

Both run the same searches on the same points; tests/clients/test_index.py holds them to the same results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shared.clients.index.points import EmbeddedPassage, SearchQuery
from shared.contracts import Document, Filters, Passage, Principal


class PassageIndex(Protocol):
    """Passages by collection. Every search is filtered by the reader's rights inside each of its branches.

    Raises VectorStoreUnavailable when the store can't be reached, IndexMismatch when the collection was built with
    another embedder, Misconfigured when a setting must change.
    """

    async def search(
        self, collection: str, queries: Sequence[SearchQuery], reader: Principal, filters: Filters, *, limit: int
    ) -> list[list[list[Passage]]]:
        """For each query its ranked lists, best first: by meaning (if it has a vector), then by words.

        All queries go out in one batch. Each list has up to `limit` passages with `score` as the arm gave it (cosine,
        or BM25) and `similarity` where both sides have vectors. A collection that does not exist yet is empty.
        """
        ...

    async def put(self, collection: str, document: Document, passages: Sequence[EmbeddedPassage]) -> None:
        """Add or overwrite passages of this version of the document; creates the collection if need be."""
        ...

    async def count(self, collection: str, document: Document, *, other_versions: bool = False) -> int:
        """How many passages of the document are in: of this version, or of all others."""
        ...

    async def delete(self, collection: str, document: Document, *, other_versions: bool = False) -> None:
        """Remove the document's passages: all of them, or those of other versions than this one."""
        ...

    async def aclose(self) -> None:
        """Let go of the store, everything written."""
        ...


__all__ = ["EmbeddedPassage", "PassageIndex", "SearchQuery"]
