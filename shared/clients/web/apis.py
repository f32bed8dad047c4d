"""The APIs of SearXNG, Tavily, Brave and Serper: how each is asked, where its hits stand, and errors of its own kind.

`hits` raises KeyError, TypeError or AttributeError where a reply has another shape.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from shared.clients.status import Endpoint
from shared.clients.web.model import Hit
from shared.errors import SearchUnavailable
from shared.settings import WebProvider, WebSettings

_BRAVE_LANGUAGES: Final = frozenset(("cs", "da", "de", "en", "es", "fi", "fr", "it", "nl", "pl", "ru", "sv", "tr"))
"""Some that it calls by their ISO code; one that it doesn't know is refused with 422."""


class SearchApi(ABC):
    """What the APIs have in common: an address of their own and a key. Each has no more than what it does otherwise."""

    provider: ClassVar[WebProvider]
    address: ClassVar[str]
    rows: ClassVar[tuple[str, ...]]
    """Where the list of hits stands in a reply."""
    fields: ClassVar[tuple[str, str, str]]
    """Address, title and excerpt of a hit."""

    def __init__(self, settings: WebSettings, *, base_url: str | None = None) -> None:
        self.settings = settings
        self.key_setting, key = settings.key_of(self.provider)
        self.address_setting = "CAIRN_WEB_PROVIDER"
        self.endpoint = Endpoint(base_url or self.address, "CAIRN_WEB", key)
        self.key = key.get_secret_value() if key is not None else ""

    @abstractmethod
    def request(self, query: str, language: str, limit: int) -> dict[str, Any]:
        """Arguments of httpx's `build_request`."""

    def hits(self, reply: Any) -> Iterable[Hit]:
        """The hits of a decoded reply, in order."""
        found = reply
        for name in self.rows:
            found = found[name]
        if not isinstance(found, list):
            raise TypeError(self.rows)
        return [Hit(*(each.get(name) for name in self.fields)) for each in found if isinstance(each, dict)]

    def wrong_setting(self, status: int, text: str) -> str | None:
        """What is wrong with key or plan, where a provider says so in a way of its own."""
        return None


class Searxng(SearchApi):
    """docs.searxng.org, "Search API". `json` must be among its `search: formats:`."""

    provider, address, rows, fields = "searxng", "", ("results",), ("url", "title", "content")

    def __init__(self, settings: WebSettings) -> None:
        super().__init__(settings, base_url=settings.base_url)
        # It has no keys; a proxy before it may ask for name and password, which stand in the address.
        self.key_setting = self.address_setting = "CAIRN_WEB_BASE_URL"

    def request(self, query: str, language: str, limit: int) -> dict[str, Any]:
        region = self.settings.region
        parameters = {
            "q": query,
            "format": "json",
            "language": f"{language}-{region.upper()}" if region else language,
            "safesearch": {"off": "0", "moderate": "1", "strict": "2"}[self.settings.safe_search],
        }
        return {"method": "GET", "url": self.endpoint.url("search"), "params": parameters}

    def hits(self, reply: Any) -> Iterable[Hit]:
        found = super().hits(reply)
        if not found and (silent := reply.get("unresponsive_engines")):
            pairs = [pair for pair in silent if isinstance(pair, list) and pair] if isinstance(silent, list) else []
            named = ", ".join(str(pair[0]) for pair in pairs[:5])
            raise SearchUnavailable(f"SearXNG's engines don't answer: {named}"[:300])
        return found

    def wrong_setting(self, status: int, text: str) -> str | None:
        if status == 403:
            return "SearXNG refuses JSON: add `json` to `search: formats:` in its settings.yml"
        return None


class Tavily(SearchApi):
    """docs.tavily.com. It takes no language, and its safe search belongs to a dearer plan."""

    provider, address = "tavily", "https://api.tavily.com"
    rows, fields = ("results",), ("url", "title", "content")

    def request(self, query: str, language: str, limit: int) -> dict[str, Any]:
        body = {"query": query, "max_results": limit, "search_depth": "basic"}
        return {"method": "POST", "url": self.endpoint.url("search"), "json": body, "headers": self.endpoint.headers}

    def wrong_setting(self, status: int, text: str) -> str | None:
        return "the plan's searches are used up" if status in (432, 433) else None


class Brave(SearchApi):
    """api-dashboard.search.brave.com. It answers a wrong key with 422, and leaves `web` out where it found nothing."""

    provider, address = "brave", "https://api.search.brave.com/res/v1"
    rows, fields = ("web", "results"), ("url", "title", "description")

    def request(self, query: str, language: str, limit: int) -> dict[str, Any]:
        wanted = {
            "q": query,
            "count": str(limit),
            "safesearch": self.settings.safe_search,
            "text_decorations": "false",
            "search_lang": language if language in _BRAVE_LANGUAGES else None,
            "country": self.settings.region.upper() if self.settings.region else None,
        }
        return {
            "method": "GET",
            "url": self.endpoint.url("web/search"),
            "params": {name: value for name, value in wanted.items() if value is not None},
            "headers": {"X-Subscription-Token": self.key, "Accept": "application/json"},
        }

    def hits(self, reply: Any) -> Iterable[Hit]:
        if reply["type"] == "search" and "web" not in reply:
            return []
        return [Hit(hit.url, _plain(hit.title), _plain(hit.snippet)) for hit in super().hits(reply)]

    def wrong_setting(self, status: int, text: str) -> str | None:
        if status == 422 and "SUBSCRIPTION_TOKEN" in text:
            return "the key is not known"
        return "the plan's searches are used up" if status == 429 and "QUOTA_LIMITED" in text else None


class Serper(SearchApi):
    """serper.dev: Google's results. It has no safe search."""

    provider, address, rows, fields = "serper", "https://google.serper.dev", ("organic",), ("link", "title", "snippet")

    def request(self, query: str, language: str, limit: int) -> dict[str, Any]:
        region = {"gl": self.settings.region} if self.settings.region else {}
        body = {"q": query, "hl": language, "num": limit, **region}
        return {"method": "POST", "url": self.endpoint.url("search"), "json": body, "headers": {"X-API-KEY": self.key}}

    def wrong_setting(self, status: int, text: str) -> str | None:
        return "the credits are used up" if status == 400 and "credits" in text.lower() else None


def _plain(text: Any) -> Any:
    return html.unescape(text) if isinstance(text, str) else text
