"""How a site wants to be asked: what its robots.txt allows, and not too much at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import httpx
from protego import Protego

from shared.clients.pages.memory import Memory
from shared.clients.pages.model import PageRefused

AGENT: Final = "Cairn"
"""The name that robots.txt may call us by."""
ROBOTS_MAX_BYTES: Final = 500_000
_ROBOTS_TTL_S: Final = 3_600.0
_HOSTS: Final = 500
"""Hosts of which something is remembered."""


class Robots:
    """RFC 9309. `fetch` gives the text of a robots.txt, and raises as a page's fetching does."""

    def __init__(self, fetch: Callable[[httpx.URL], Awaitable[str]]) -> None:
        self._fetch = fetch
        self._texts: Memory[str] = Memory(_HOSTS)

    async def check(self, url: httpx.URL) -> None:
        """Raises PageRefused where the site doesn't want the page read, PageUnavailable where it can't say so now."""
        address = url.copy_with(raw_path=b"/robots.txt")
        text = self._texts.get(str(address))
        if text is None:
            try:
                text = await self._fetch(address)
            except PageRefused as refused:
                if refused.reason != "status":  # there is one, but not for us to read
                    raise PageRefused("robots", f"{address}: {refused}") from refused
                text = ""
            self._texts.put(str(address), text, _ROBOTS_TTL_S)
        # The text is kept, not what it is parsed to, which may take a hundred times its memory. Long ones take seconds.
        if text and not await asyncio.to_thread(lambda: Protego.parse(text).can_fetch(str(url), AGENT)):
            raise PageRefused("robots", f"{address} closes {url.path[:200]} (CAIRN_PAGES_ROBOTS)")


class _Queue:
    def __init__(self, at_once: int) -> None:
        self.places = asyncio.Semaphore(at_once)
        self.next_s = 0.0


class Turns:
    """Requests to one host: at most `at_once` in flight, begun at least `delay_s` apart."""

    def __init__(self, at_once: int, delay_s: float) -> None:
        self._at_once = at_once
        self._delay_s = delay_s
        self._queues: Memory[_Queue] = Memory(_HOSTS)

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        queue = self._queues.get(host) or _Queue(self._at_once)
        self._queues.put(host, queue, ttl_s=60.0)
        async with queue.places:
            now = time.monotonic()
            begin_s = max(now, queue.next_s)
            queue.next_s = begin_s + self._delay_s
            await asyncio.sleep(begin_s - now)
            yield
