"""Web search: SearXNG's JSON API (docs.searxng.org, "Search API").

What comes back is data from strangers: titles and snippets, cut to size, with their URLs, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import httpx

from shared.clients.http import raise_for
from shared.contracts import WebPage
from shared.errors import InvalidModelReply, Misconfigured, SearchUnavailable
from shared.settings import WebSettings

MAX_SNIPPET_CHARS = 2_000
MAX_REPLY_BYTES = 2_000_000


class WebSearch(Protocol):
    """Searches the web. Raises SearchUnavailable (try again) or Misconfigured (a setting must change)."""

    async def search(self, query: str, *, language: str, limit: int) -> Sequence[WebPage]: ...

    async def aclose(self) -> None: ...


class SearxngSearch:
    """GET {base_url}/search?format=json"""

    def __init__(self, settings: WebSettings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.settings = settings
        self._http = httpx.AsyncClient(timeout=settings.timeout_s, transport=transport)

    async def search(self, query: str, *, language: str, limit: int) -> Sequence[WebPage]:
        base_url = (self.settings.base_url or "").rstrip("/")
        parameters = {"q": query, "format": "json", "language": language, "safesearch": "1"}
        try:
            response = await self._http.get(f"{base_url}/search", params=parameters)
        except httpx.HTTPError as error:
            raise SearchUnavailable(f"SearXNG at {base_url}: {error!r}") from error
        if response.status_code == 403:
            raise Misconfigured("SearXNG refuses JSON: add `json` to `search: formats:` in its settings.yml")
        raise_for(response, SearchUnavailable, prefix="CAIRN_WEB")
        if len(response.content) > MAX_REPLY_BYTES:
            raise InvalidModelReply(f"SearXNG's reply has more than {MAX_REPLY_BYTES} bytes")
        return _pages(response)[:limit]

    async def aclose(self) -> None:
        await self._http.aclose()


def _pages(response: httpx.Response) -> list[WebPage]:
    try:
        reply: dict[str, Any] = response.json()
        hits = list(reply["results"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidModelReply("SearXNG's reply is not its JSON; is CAIRN_WEB_BASE_URL right?") from error
    if not hits and reply.get("unresponsive_engines"):
        names = ", ".join(str(engine[0]) for engine in reply["unresponsive_engines"][:5] if engine)
        raise SearchUnavailable(f"SearXNG's engines don't answer: {names}")
    pages: dict[str, WebPage] = {}
    for hit in hits:
        url, title, snippet = (str(hit.get(name) or "").strip() for name in ("url", "title", "content"))
        if url.startswith(("http://", "https://")) and snippet:
            pages.setdefault(url, WebPage(url=url, title=title or url, snippet=snippet[:MAX_SNIPPET_CHARS]))
    return list(pages.values())


def open_web_search(settings: WebSettings) -> WebSearch | None:
    """The configured provider; None where the web is off."""
    return SearxngSearch(settings) if settings.provider == "searxng" else None
