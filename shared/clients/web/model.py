"""What a web search is: a few words out, pages in. What comes back is data from strangers, cut to size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urldefrag, urlsplit

from courlan import normalize_url

from shared.contracts import WebPage

MAX_SNIPPET_CHARS: Final = 2_000
_MAX_TITLE_CHARS: Final = 300
_MAX_URL_CHARS: Final = 2_000


class WebSearch(Protocol):
    """Searches the web. `timeout_s` bounds the whole search; `language` is ISO 639-1.

    Raises SearchUnavailable (try again), Misconfigured (a setting must change) or InvalidModelReply (unreadable).
    """

    async def search(self, query: str, *, language: str, limit: int, timeout_s: float) -> Sequence[WebPage]: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Hit:
    """One result as a provider gives it; nothing of it has been looked at yet."""

    url: Any
    title: Any
    snippet: Any


@dataclass(frozen=True, slots=True)
class Domains:
    """Whose pages count: those of `allowed` (all where it is empty), without those of `denied`; subdomains included."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()

    def admit(self, host: str) -> bool:
        return (not self.allowed or _is_below(host, self.allowed)) and not _is_below(host, self.denied)


def pages_of(hits: Iterable[Hit], domains: Domains, limit: int) -> list[WebPage]:
    """The first `limit` hits that are pages of admitted domains, each page once, in their order."""
    pages: dict[str, WebPage] = {}
    for hit in hits:
        url = _text(hit.url)
        if (host := host_of(url)) and domains.admit(host):
            title = " ".join(_text(hit.title).split())[:_MAX_TITLE_CHARS] or url
            page = WebPage(url=url, title=title, snippet=_text(hit.snippet)[:MAX_SNIPPET_CHARS])
            pages.setdefault(page_key(url), page)
    return list(pages.values())[:limit]


def host_of(url: str) -> str:
    """The host of an http or https address, lower case; empty for anything else."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for a port that is none
    except ValueError:  # brackets that hold no IPv6 address
        return ""
    wanted = parts.scheme in ("http", "https") and len(url) <= _MAX_URL_CHARS
    return (parts.hostname or "").rstrip(".") if wanted else ""


def page_key(url: str) -> str:
    """The same for addresses of one page: without scheme, `www.`, fragment, trackers, and with sorted parameters.

    Only for comparing. What is fetched and cited is the address as it was found.
    """
    known = normalize_url(urldefrag(url).url, trailing_slash=False).partition("://")[2]
    return known.removeprefix("www.").rstrip("/")


def _is_below(host: str, domains: Iterable[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _text(value: Any) -> str:
    """The value as text that can be written as UTF-8: JSON may escape half of a surrogate pair."""
    return value.encode("utf-8", "replace").decode().strip() if isinstance(value, str) else ""
