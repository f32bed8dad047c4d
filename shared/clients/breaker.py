"""Keeps a dead or struggling endpoint from eating every deadline, and us from making it worse."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from prometheus_client import Gauge

BREAKER_OPEN = Gauge("cairn_breaker_open", "1 while calls to this endpoint are refused.", ("endpoint",))

_NEXT_S: Final = 0.1
_RETRY_SHARE: Final = 0.2
_RETRY_RESERVE: Final = 20.0


class CircuitBreaker:
    """Refuses calls for `cool_down_s` after `failures` in a row, then lets one through to try.

    Calls that were in flight together fail together: they count once, or one bad moment would spoil every retry.
    """

    def __init__(
        self,
        endpoint: str = "",
        *,
        failures: int = 5,
        cool_down_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`endpoint` is its label in metrics."""
        self._gauge = BREAKER_OPEN.labels(endpoint) if endpoint else None
        self._limit = failures
        self._cool_down_s = cool_down_s
        self._clock = clock
        self._failed = 0
        self._failed_at = -math.inf
        self._closed_until = 0.0

    def started(self) -> float:
        """The moment a call begins; `failed` wants it back."""
        return self._clock()

    def left_s(self) -> float:
        """Seconds until a call may be tried; 0 if one may be now, or nothing is wrong."""
        return 0.0 if self._failed < self._limit else max(0.0, self._closed_until - self._clock())

    def wait_s(self, *, fair: bool = True) -> float:
        """The same for a caller that goes on if it is 0: of those that come while one is tried, it alone does.

        Who has no time for a `fair` trial leaves it to others: its failure would say nothing, and cost a cool-down.
        """
        if self._failed < self._limit:
            return 0.0
        if (left_s := self.left_s()) > 0 or not fair:
            return max(left_s, _NEXT_S)
        self._closed_until = self._clock() + self._cool_down_s  # this caller tries; the others wait for what it finds
        return 0.0

    def succeeded(self) -> None:
        self._failed = 0
        self._show()

    def failed(self, started: float) -> None:
        if started <= self._failed_at:
            return
        self._failed_at = self._clock()
        self._failed += 1
        if self._failed == self._limit:
            self._closed_until = self._clock() + self._cool_down_s
        self._show()

    def _show(self) -> None:
        if self._gauge is not None:
            self._gauge.set(self._failed >= self._limit)


class RetryBudget:
    """Retries that may be made although the reply is not needed: a fifth of the calls, and a few to begin with.

    Retries multiply the load on an endpoint that already fails under it (Google's SRE book, "Handling Overload").
    """

    def __init__(self, *, share: float = _RETRY_SHARE, reserve: float = _RETRY_RESERVE) -> None:
        self._share = share
        self._reserve = reserve
        self._left = reserve

    def called(self) -> None:
        self._left = min(self._reserve, self._left + self._share)

    @property
    def left(self) -> bool:
        """Whether there is a retry left."""
        return self._left >= 1

    def take(self) -> bool:
        """Spend one, if there is one left."""
        if not self.left:
            return False
        self._left -= 1
        return True
