"""What a collection was built with, kept beside it, and whether this process may use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shared.clients.index.lexical import LEXICAL_VERSION
from shared.clients.index.types import QueryVectors
from shared.errors import IndexMismatch

FORMAT = 2


@dataclass(frozen=True, slots=True)
class Manifest:
    """Embedder, vector size and lexical encoding of a collection."""

    fingerprint: str | None
    dimension: int | None
    lexical: str = LEXICAL_VERSION
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_manifest(collection: str, facts: Mapping[str, Any] | None) -> Manifest:
    """The manifest in these facts. Raises IndexMismatch where Cairn did not write them."""
    try:
        found = Manifest(**(facts or {}))
    except TypeError as error:
        raise IndexMismatch(f"collection {collection!r} was not made by Cairn: choose another name for it") from error
    if (found.format, found.lexical) != (FORMAT, LEXICAL_VERSION):
        raise _mismatch(collection, f"format {found.format} with {found.lexical}", f"{FORMAT} with {LEXICAL_VERSION}")
    return found


def check_search(collection: str, found: Manifest, fingerprint: str | None, queries: Sequence[QueryVectors]) -> None:
    """Refuse to compare vectors of two embedders. Without an embedder on one side, words still find."""
    if None in (found.fingerprint, fingerprint):
        return
    sizes = {len(query.dense) for query in queries if query.dense is not None} - {found.dimension}
    if found.fingerprint != fingerprint or sizes:
        now = Manifest(fingerprint, max(sizes, default=found.dimension))
        raise _mismatch(collection, _describe(found), _describe(now))


def check_put(collection: str, found: Manifest, wanted: Manifest) -> None:
    """Refuse passages that some searches would never find."""
    if found != wanted:
        raise _mismatch(collection, _describe(found), _describe(wanted))


def _describe(manifest: Manifest) -> str:
    if manifest.fingerprint is None:
        return "no embedder"
    return f"embedder {manifest.fingerprint} with {manifest.dimension} dimensions"


def _mismatch(collection: str, built_with: str, now: str) -> IndexMismatch:
    return IndexMismatch(
        f"collection {collection!r} was built with {built_with}, and this process uses {now}: "
        "ingest into a new collection, or set CAIRN_EMBED_* back"
    )
