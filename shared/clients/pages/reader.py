"""A page by its address: fetched within bounds, read at arm's length, and remembered for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from shared.clients.pages.extracting import Extractor
from shared.clients.pages.fetching import Fetcher
from shared.clients.pages.guard import target_of
from shared.clients.pages.memory import Memory
from shared.clients.pages.model import PageReader, PageRefused, PageUnavailable, ReadPage
from shared.clients.pages.settings import PagesSettings

_REFUSED_TTL_S: Final = 60.0
"""A page may be written, or a robots.txt opened, any minute."""


class WebPageReader:
    """Owns its fetcher and extractor: closed, it closes both."""

    def __init__(
        self,
        settings: PagesSettings,
        *,
        fetcher: Fetcher,
        extractor: Extractor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._extractor = extractor
        self._known: Memory[ReadPage | PageRefused] = Memory(settings.cache_pages, clock)

    async def read(self, url: str, *, timeout_s: float) -> ReadPage:
        """Raises PageRefused or PageUnavailable, the latter also where it takes longer than `timeout_s`."""
        address = str(target_of(url, self._settings))
        known = self._known.get(address)
        if isinstance(known, PageRefused):
            raise PageRefused(known.reason, known.told)
        if known is not None:
            return known
        limit_s = min(timeout_s, self._settings.timeout_s)
        try:
            async with asyncio.timeout(limit_s):
                page = await self._extractor.extract(await self._fetcher.fetch(address))
        except TimeoutError as error:
            raise PageUnavailable(f"{address} took longer than {limit_s:g} s") from error
        except PageRefused as refused:
            self._known.put(address, refused, min(_REFUSED_TTL_S, self._settings.cache_ttl_s))
            raise
        self._known.put(address, page, self._settings.cache_ttl_s)
        return page

    async def aclose(self) -> None:
        await self._fetcher.aclose()
        await self._extractor.aclose()


def open_page_reader(settings: PagesSettings) -> PageReader:
    """A reader for one event loop. Takes some seconds: its reading processes start."""
    return WebPageReader(settings, fetcher=Fetcher(settings), extractor=Extractor(settings))
