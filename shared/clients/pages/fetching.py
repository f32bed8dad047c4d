"""An address becomes bytes: over the guarded network, hop by hop, and never more of them than agreed."""

from __future__ import annotations

import ssl
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import httpcore
import httpx

from shared.clients.pages.guard import GuardedNetwork, Resolve, host_of, port_of, target_of
from shared.clients.pages.manners import AGENT, ROBOTS_MAX_BYTES, Robots, Turns
from shared.clients.pages.model import PageRefused, PageUnavailable
from shared.clients.pages.settings import PagesSettings

READ_TYPES: Final = ("text/html", "application/xhtml+xml", "text/plain", "text/markdown", "application/pdf")
_ANY_TYPE: Final = ()
_TRY_AGAIN: Final = frozenset({408, 425, 429})
_CONNECTIONS: Final = 64
_GZIP: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an address holds. `body` is unpacked."""

    url: str
    at: float
    """Seconds since the epoch."""
    content_type: str
    charset: str | None
    body: bytes


class Fetcher:
    """For one event loop. Below it is httpcore, not httpx: nothing is followed, sent or unpacked unasked."""

    def __init__(
        self,
        settings: PagesSettings,
        *,
        resolve: Resolve | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._network = GuardedNetwork(settings, resolve=resolve, network=network or httpcore.AnyIOBackend())
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls or httpx.create_ssl_context(),
            max_connections=_CONNECTIONS,
            keepalive_expiry=15.0,
            network_backend=self._network,
        )
        self._turns = Turns(settings.per_host, settings.delay_s)
        self._robots = Robots(self._robots_text) if settings.robots else None
        self._agent = (f"{AGENT}/1.0 (+{settings.contact})" if settings.contact else f"{AGENT}/1.0").encode()

    async def fetch(self, address: str) -> Fetched:
        """Raises PageRefused or PageUnavailable. Takes as long as it takes: the caller sets a limit."""
        return await self._follow(address, self._settings.max_bytes, READ_TYPES, self._robots)

    async def aclose(self) -> None:
        await self._pool.aclose()
        self._network.close()

    async def _robots_text(self, url: httpx.URL) -> str:
        found = await self._follow(str(url), ROBOTS_MAX_BYTES, _ANY_TYPE, None)
        return found.body.decode("utf-8", "replace")

    async def _follow(
        self, address: str, max_bytes: int, content_types: tuple[str, ...], robots: Robots | None
    ) -> Fetched:
        url = target_of(address, self._settings)
        starts_inside = host_of(url) in self._settings.allow_hosts
        for _ in range(self._settings.max_redirects + 1):
            if robots is not None:
                await robots.check(url)
            found = await self._get(url, max_bytes, content_types)
            if isinstance(found, Fetched):
                return found
            url = target_of(found, self._settings, base=url)
            if host_of(url) in self._settings.allow_hosts and not starts_inside:
                raise PageRefused("private address", f"{address} leads to {host_of(url)}, which only we may reach")
        raise PageRefused("redirects", f"{address}: more than {self._settings.max_redirects}")

    async def _get(self, url: httpx.URL, max_bytes: int, content_types: tuple[str, ...]) -> Fetched | str:
        """What is there, or where it is instead."""
        asked = [
            (b"Host", url.netloc),
            (b"User-Agent", self._agent),
            (b"Accept", ", ".join(content_types).encode() or b"*/*"),
            (b"Accept-Encoding", b"gzip"),
        ]
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=port_of(url), target=url.raw_path)
        try:
            async with (
                self._turns.turn(host_of(url)),
                self._pool.stream("GET", target, headers=asked) as response,
            ):
                headers = httpx.Headers(response.headers)
                if 300 <= response.status < 400 and "location" in headers:
                    return headers["location"]
                _raise_for(response.status, url)
                kind, charset = _content_type(headers)
                if content_types and kind not in content_types:
                    raise PageRefused("content type", f"{url} is {kind or 'of no type'}")
                body = await _bounded(response.aiter_stream(), headers, max_bytes, url)
                return Fetched(str(url), time.time(), kind, charset, body)
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise PageUnavailable(f"{url}: {error!r}") from error


def _raise_for(status: int, url: httpx.URL) -> None:
    if status in _TRY_AGAIN or status >= 500:
        raise PageUnavailable(f"{url} answered {status}")
    if not 200 <= status < 300:
        raise PageRefused("status", f"{url} answered {status}")


def _content_type(headers: httpx.Headers) -> tuple[str, str | None]:
    kind, _, parameters = headers.get("content-type", "").partition(";")
    _, _, charset = parameters.lower().partition("charset=")
    return kind.strip().lower(), charset.partition(";")[0].strip(" \"'") or None


async def _bounded(chunks: AsyncIterator[bytes], headers: httpx.Headers, max_bytes: int, url: httpx.URL) -> bytes:
    """The body, unpacked piece by piece, so that a small one that unpacks to a huge one is met in time."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise PageRefused("broken", f"{url} is packed as {encoding[:50]!a}, which was not asked for")
    too_big = PageRefused("too big", f"{url} has more than {max_bytes} bytes (CAIRN_PAGES_MAX_BYTES)")
    unpack = zlib.decompressobj(_GZIP) if encoding != "identity" else None
    body = bytearray()
    sent = 0
    async for chunk in chunks:
        sent += len(chunk)
        try:
            body += chunk if unpack is None else unpack.decompress(chunk, max_bytes + 1 - len(body))
        except zlib.error as error:
            raise PageRefused("broken", f"{url}: its gzip is damaged ({error})") from error
        if max(sent, len(body)) > max_bytes:
            raise too_big
    if unpack is not None and not unpack.eof:
        raise PageRefused("broken", f"{url}: its gzip ends too early")
    return bytes(body)
