"""What goes into an index and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.clients.embedder import Vector
from shared.clients.index.lexical import SparseVector
from shared.clients.index.points import Rights
from shared.contracts import Document, Filters, Passage, PassageDraft


@dataclass(frozen=True, slots=True)
class QueryVectors:
    """One query as the index searches it: by words, by meaning, or both."""

    query: int
    """Index of the query among the job's queries; passages found carry it."""
    lexical: SparseVector | None
    dense: Vector | None
    hypothetical: bool = False
    """The vector is that of a made-up answer (HyDE): it finds, but its cosine says nothing about the question."""


@dataclass(frozen=True, slots=True)
class PassageVectors:
    """One passage with what it is found by. `dense` is None where there is no embedder."""

    draft: PassageDraft
    lexical: SparseVector
    dense: Vector | None


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """What a collection holds and what it was built with."""

    passages: int
    fingerprint: str | None
    """The embedder's; None for a collection without dense vectors."""
    dimension: int | None
    lexical: str


class PassageIndex(Protocol):
    """Passages with their rights. Every method may raise VectorStoreUnavailable or Misconfigured.

    A collection that does not exist is empty: searching it finds nothing, deleting from it removes nothing.
    """

    @property
    def version(self) -> str:
        """What a search depends on besides the passages: embedder and lexical encoding."""
        ...

    async def ensure(self, collection: str, dimension: int | None) -> None:
        """Create the collection for dense vectors of this size (None: lexical only) if it does not exist.

        Raises IndexMismatch if it exists and was built with another embedder, size or lexical encoding.
        """
        ...

    async def search(
        self, collection: str, queries: Sequence[QueryVectors], rights: Rights, filters: Filters, limit: int
    ) -> list[list[Passage]]:
        """Up to `limit` passages a query and arm (dense, lexical), each list best first, all in one batch.

        Only passages within `rights` and `filters` take part, and the rarity of words is counted among those the
        asker may read. `score` is the arm's own: cosine, or BM25 (>= 0). `similarity` is the greatest cosine of the
        passage with any query that is not hypothetical, in [-1, 1], also for passages that only words have found;
        None where the collection or the queries have no dense vectors. Raises IndexMismatch as `ensure` does.
        """
        ...

    async def put(
        self, collection: str, document: Document, passage_total: int, passages: Sequence[PassageVectors]
    ) -> None:
        """Write passages of one edition of a document; they are found, and safe from a crash, when this returns.

        The same passages again change nothing. The collection must exist (`ensure`).
        """
        ...

    async def digests(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, str]:
        """Digest (`passage_digest`) by id of those of these passages that the index holds."""
        ...

    async def count(self, collection: str, tenant: str, document_id: str, edition: str | None = None) -> int:
        """Passages of a document in the index, of one edition or of all."""
        ...

    async def retire_others(self, collection: str, tenant: str, document_id: str, edition: str) -> int:
        """Remove every passage of the document that is not of this edition; answers how many."""
        ...

    async def delete_document(self, collection: str, tenant: str, document_id: str) -> int:
        """Remove a document of this tenant; answers how many passages went."""
        ...

    async def info(self, collection: str) -> CollectionInfo | None:
        """What the collection holds; None if it does not exist."""
        ...

    async def aclose(self) -> None:
        """Write what is pending and let go. Calling it twice does no harm."""
        ...
