"""Re-ranking: a model that reads question and passage together says how well they fit. None by default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import httpx

from shared.clients.http import JsonService
from shared.clients.status import Endpoint, RequestRefused
from shared.errors import InvalidModelReply, Misconfigured, RerankerUnavailable
from shared.settings import RerankSettings


class Reranker(Protocol):
    """Scores passages for a question."""

    async def rerank(self, question: str, texts: Sequence[str], *, timeout_s: float) -> list[float]:
        """One score a text, in order; greater is better, of no fixed range.

        Raises RerankerUnavailable, InvalidModelReply or Misconfigured.
        """
        ...

    async def aclose(self) -> None: ...


def open_reranker(settings: RerankSettings) -> Reranker | None:
    """The endpoint of CAIRN_RERANK_BASE_URL; None where it is unset."""
    return HttpReranker(settings) if settings.base_url is not None else None


class HttpReranker:
    """POST {base_url}/rerank with `query` and `documents`; replies of Cohere, Jina, vLLM and TEI are understood."""

    def __init__(self, settings: RerankSettings, *, client: httpx.AsyncClient | None = None) -> None:
        if settings.base_url is None:
            raise Misconfigured("CAIRN_RERANK_BASE_URL is unset")
        self._settings = settings
        self._service = JsonService(
            Endpoint(settings.base_url, "CAIRN_RERANK", settings.api_key),
            client=client,
            concurrency=settings.concurrency,
            timeout_s=settings.timeout_s,
            attempts=2,
            unavailable=RerankerUnavailable,
        )

    async def rerank(self, question: str, texts: Sequence[str], *, timeout_s: float) -> list[float]:
        # `texts` is TEI's name for `documents`; each server ignores the other's.
        wanted = {
            "model": self._settings.model,
            "query": question,
            "documents": list(texts),
            "texts": list(texts),
            "top_n": len(texts),
            "return_documents": False,
        }
        try:
            reply = await self._service.post("rerank", wanted, timeout_s=min(timeout_s, self._settings.timeout_s))
        except RequestRefused as refused:
            raise Misconfigured(f"check CAIRN_RERANK_MODEL: {refused}") from refused
        return read_scores(reply, len(texts))

    async def aclose(self) -> None:
        await self._service.aclose()


def read_scores(reply: Any, count: int) -> list[float]:
    """Scores by position. Every text must have exactly one: InvalidModelReply otherwise."""
    rows: Any = reply.get("results", reply.get("data")) if isinstance(reply, dict) else reply
    try:
        scored = [(int(row["index"]), float(row.get("relevance_score", row.get("score")))) for row in rows]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InvalidModelReply("the re-ranking is no list of `index` and `relevance_score`") from error
    if sorted(place for place, _ in scored) != list(range(count)) or not all(math.isfinite(s) for _, s in scored):
        raise InvalidModelReply(f"the re-ranking does not score each of {count} passages once")
    return [score for _, score in sorted(scored)]
