"""The index of passages: dense and lexical search inside the asker's rights, over Qdrant's engine or its server.

    PassageIndex          what the retriever needs of an index
    ├── EdgeIndex         Qdrant's engine in this process, a directory; one process owns it
    └── QdrantIndex       a Qdrant server, any number of processes

A collection is a named set of passages of one embedder. It comes into being with its first passage.
"""

from __future__ import annotations

from pathlib import Path

from shared.clients.index.conditions import GONE, NOT_GONE, Above, AnyOf, NoneOf, Place, Rights, Within
from shared.clients.index.lexical import LEXICAL_VERSION, SparseVector, encode_passage, encode_query
from shared.clients.index.points import (
    edition_of,
    language_of,
    passage_digest,
    passage_id_of,
    passage_text,
    standing_of,
)
from shared.clients.index.types import CollectionInfo, PassageIndex, PassageVectors, QueryVectors
from shared.settings import IndexSettings

__all__ = [
    "GONE",
    "LEXICAL_VERSION",
    "NOT_GONE",
    "Above",
    "AnyOf",
    "CollectionInfo",
    "NoneOf",
    "PassageIndex",
    "PassageVectors",
    "Place",
    "QueryVectors",
    "Rights",
    "SparseVector",
    "Within",
    "edition_of",
    "encode_passage",
    "encode_query",
    "language_of",
    "open_index",
    "passage_digest",
    "passage_id_of",
    "passage_text",
    "standing_of",
]


def open_index(settings: IndexSettings, data_dir: Path, *, fingerprint: str | None) -> PassageIndex:
    """The index these settings name: the server of CAIRN_QDRANT_URL, else the engine in a directory.

    `fingerprint` is the embedder's, None without one. Raises Misconfigured where the directory belongs to another
    running process, or the engine has no wheel. The server is not asked yet.
    """
    # Imported here: the engine's library weighs 35 MB, and only one of the two is used.
    if settings.qdrant_url is not None:
        from shared.clients.index.server import QdrantIndex  # noqa: PLC0415

        return QdrantIndex.at(settings, fingerprint=fingerprint)
    from shared.clients.index.edge import EdgeIndex  # noqa: PLC0415

    return EdgeIndex(settings.qdrant_path or data_dir / "qdrant", fingerprint=fingerprint)
