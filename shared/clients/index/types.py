"""What goes into an index and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared.clients.embedder import Vector
from shared.clients.index.conditions import Condition, Place, Rights
from shared.clients.index.lexical import SparseVector
from shared.clients.index.points import State
from shared.contracts import Document, Filters, PassageDraft
from shared.passages import Ranking


@dataclass(frozen=True, slots=True)
class QueryVectors:
    """One query as the index searches it: by words, by meaning, or both."""

    query: int
    """Index of the query among the job's queries; passages found carry it."""
    lexical: SparseVector | None
    dense: Vector | None
    hypothetical: bool = False
    """The vector is that of a made-up answer (HyDE): it finds, but its cosine says nothing about the question."""
    baselines: Mapping[str, float] = field(default_factory=dict)
    """Cosine that any text of a language has with this query, by ISO 639-1 code; what a passage has beyond it counts.
    Empty: all languages are alike."""


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
    ) -> list[Ranking]:
        """Up to `limit` passages a query and arm, dense before lexical, all in one batch.

        Only live passages within `rights` and `filters` that hold at the moment take part, and the rarity of words is
        counted among those the asker may read. While a document is being replaced its later version is found.
        `score` is the arm's own: cosine above the baseline of the passage's language, or BM25 (>= 0). `similarity` is
        the greatest cosine of the passage with any query that is not hypothetical, in [-1, 1], also for passages that
        only words have found; None where the collection or the queries have no dense vectors. Raises IndexMismatch as
        `ensure` does.
        """
        ...

    async def vectors(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, Vector]:
        """Dense vectors of length 1 by passage id, of those that have one."""
        ...

    async def put(
        self,
        collection: str,
        document: Document,
        passage_total: int,
        passages: Sequence[PassageVectors],
        *,
        submitted_at: float,
        state: State = "live",
    ) -> None:
        """Write passages of one edition of a document; they are safe from a crash when this returns.

        Live ones are found from now on, staged ones when they are published. The same passages again change nothing.
        The collection must exist (`ensure`).
        """
        ...

    async def digests(self, collection: str, passage_ids: Sequence[str]) -> Mapping[str, str]:
        """Digest (`passage_digest`) by id of those of these passages that the index holds."""
        ...

    async def count(self, place: Place, *also: Condition) -> int:
        """Passages of a document in the index that meet these conditions, too."""
        ...

    async def publish(self, place: Place, edition: str, document: Document, *, submitted_at: float) -> None:
        """Make all passages of this edition live, with the document's rights and validity, in one step."""
        ...

    async def delete(self, place: Place, *also: Condition) -> int:
        """Remove the passages of a document that meet these conditions, too; answers how many."""
        ...

    async def bury(self, place: Place, *, submitted_at: float) -> None:
        """Mark that the document was removed at this moment. The mark counts as a passage of an edition of its own."""
        ...

    async def documents(self, collection: str, tenant: str) -> list[str]:
        """Ids of the tenant's documents, in order."""
        ...

    async def info(self, collection: str) -> CollectionInfo | None:
        """What the collection holds; None if it does not exist."""
        ...

    async def aclose(self) -> None:
        """Write what is pending and let go. Calling it twice does no harm."""
        ...
