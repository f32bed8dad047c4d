"""Web search: SearXNG's JSON API (docs.searxng.org, "Search API").

What comes back is data from strangers: titles and snippets, cut to size, with their URLs, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

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
        except httpx.InvalidURL as error:
            raise Misconfigured(f"CAIRN_WEB_BASE_URL can't be used: {error}") from error
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
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidModelReply("SearXNG's reply is not its JSON; is CAIRN_WEB_BASE_URL right?") from error
    if not hits and (silent := reply.get("unresponsive_engines")):
        pairs = [engine for engine in silent if isinstance(engine, list) and engine] if isinstance(silent, list) else []
        raise SearchUnavailable(f"SearXNG's engines don't answer: {', '.join(str(pair[0]) for pair in pairs[:5])}")
    pages: dict[str, WebPage] = {}
    for hit in hits:
        if not isinstance(hit, dict):
            continue
        url, title, snippet = (_text(hit.get(name)) for name in ("url", "title", "content"))
        if snippet and _is_address(url):
            pages.setdefault(url, WebPage(url=url, title=title or url, snippet=snippet[:MAX_SNIPPET_CHARS]))
    return list(pages.values())


def _text(value: Any) -> str:
    """The value as text that can be written as UTF-8: JSON may escape half of a surrogate pair."""
    return str(value or "").encode("utf-8", "replace").decode().strip()


def _is_address(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
    except ValueError:  # brackets that hold no IPv6 address
        return False


def open_web_search(settings: WebSettings) -> WebSearch | None:
    """The configured provider; None where the web is off."""
    return SearxngSearch(settings) if settings.provider == "searxng" else None
