"""Hedged calls: a reply later than nearly all before it is asked for a second time (Dean and Barroso, "The Tail at
Scale", 2013). Costs about one call in twenty and cuts the slowest ones, which are what a fan-out waits for.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

_KEPT: Final = 200
_LEAST: Final = 20
"""Replies to have seen before what is late is known."""


class Hedge:
    """Remembers how long recent calls took; one instance an endpoint."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KEPT)

    @property
    def patience_s(self) -> float | None:
        """The 95th percentile of recent calls; None while too few were made."""
        return statistics.quantiles(self._seconds, n=20)[-1] if len(self._seconds) >= _LEAST else None

    async def first_of(self, call: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool]) -> T:
        """What `call` returns, or a second one made when the first is late and `may_repeat`: whichever is good first.

        Raises the first call's error where neither is. The call that lost is cancelled, which closes its stream.
        """
        first = asyncio.ensure_future(self._timed(call))
        calls = [first]
        try:
            done, _ = await asyncio.wait(calls, timeout=self.patience_s)
            if not done and may_repeat():
                calls.append(asyncio.ensure_future(self._timed(call)))
            waiting = set(calls)
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    if each.exception() is None:
                        return each.result()
            return first.result()
        finally:
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _timed(self, call: Callable[[], Awaitable[T]]) -> T:
        started = time.perf_counter()
        result = await call()
        self._seconds.append(time.perf_counter() - started)
        return result
