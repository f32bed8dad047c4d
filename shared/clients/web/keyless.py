"""Web search without a key, by the library ddgs: it reads the result pages of search engines, which don't like it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from ddgs import DDGS
from ddgs.exceptions import DDGSException, RatelimitException

from shared.clients.web.model import Hit
from shared.errors import SearchUnavailable
from shared.settings import WebSettings

_THREADS: Final = 4
_SAFE_SEARCH: Final = {"off": "off", "moderate": "moderate", "strict": "on"}
_FOUND_NOTHING: Final = "No results found"


class DdgsProvider:
    """Its calls block, so they run in threads of their own; one that is given up ends by ddgs's own time limit."""

    name = "ddgs"

    def __init__(self, settings: WebSettings, *, opened: Callable[..., Any] = DDGS) -> None:
        self._settings = settings
        self._opened = opened
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ddgs")

    async def hits(self, query: str, language: str, limit: int, timeout_s: float) -> list[Hit]:
        """The hits in ddgs's order."""
        country = self._settings.region or ("us" if language == "en" else language)
        ask = partial(
            self._ask,
            query,
            int(timeout_s) or 1,
            region=f"{country}-{language}",
            safesearch=_SAFE_SEARCH[self._settings.safe_search],
            max_results=limit,
        )
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except RatelimitException as error:
            raise SearchUnavailable(f"ddgs: too many searches: {error}") from error
        except DDGSException as error:
            if _FOUND_NOTHING in str(error):
                return []
            raise SearchUnavailable(f"ddgs: {error}"[:300]) from error
        return [Hit(each.get("href"), each.get("title"), each.get("body")) for each in found]

    async def aclose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, query: str, timeout_s: int, **options: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._opened(timeout=timeout_s).text(query, **options)
        return found
