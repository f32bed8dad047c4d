"""How a collection is made on a Qdrant server: vectors, storage and payload indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from qdrant_client import models

from shared.clients.index.manifest import Manifest
from shared.clients.index.points import DENSE, KEYWORD_FIELDS, LEXICAL, NUMBER_FIELDS

METADATA: Final = "cairn"
"""Key of the collection's metadata under which its manifest stands."""

PAYLOAD_INDEXES: Final[dict[str, models.PayloadSchemaType | models.KeywordIndexParams]] = {
    **dict.fromkeys(KEYWORD_FIELDS, models.PayloadSchemaType.KEYWORD),
    **dict.fromkeys(NUMBER_FIELDS, models.PayloadSchemaType.FLOAT),
    # Keeps the passages of a tenant together on disk, since every search is one tenant's.
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
}


@dataclass(frozen=True, slots=True)
class Storage:
    """How new collections keep their vectors."""

    quantization: Literal["none", "scalar", "binary"] = "none"
    on_disk: bool = False


def config_of(manifest: Manifest, storage: Storage) -> dict[str, Any]:
    """Arguments of `create_collection`."""
    dense = {}
    if manifest.dimension is not None:
        dense[DENSE] = models.VectorParams(
            size=manifest.dimension, distance=models.Distance.COSINE, on_disk=storage.on_disk or None
        )
    return {
        "vectors_config": dense,
        "sparse_vectors_config": {LEXICAL: models.SparseVectorParams(modifier=models.Modifier.IDF)},
        "quantization_config": _quantization(storage),
        "on_disk_payload": storage.on_disk or None,
        "metadata": {METADATA: manifest.to_json()},
    }


def _quantization(storage: Storage) -> models.ScalarQuantization | models.BinaryQuantization | None:
    """Quantised vectors stay in memory; what they find is scored again by the full ones."""
    if storage.quantization == "scalar":
        return models.ScalarQuantization(
            scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
        )
    if storage.quantization == "binary":
        return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
    return None
