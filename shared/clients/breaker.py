"""Keeps a dead endpoint from eating every deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class CircuitBreaker:
    """Refuses calls for `cool_down_s` after `failures` in a row, then lets one through to try.

    Calls that were in flight together fail together: they count once, or one bad moment would spoil every retry.
    """

    def __init__(
        self, *, failures: int = 5, cool_down_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = failures
        self._cool_down_s = cool_down_s
        self._clock = clock
        self._failed = 0
        self._failed_at = -math.inf
        self._closed_until = 0.0

    def started(self) -> float:
        """The moment a call begins; `failed` wants it back."""
        return self._clock()

    def wait_s(self) -> float:
        """0 if a call may be made now, else seconds until one may be tried."""
        if self._failed < self._limit:
            return 0.0
        left_s = self._closed_until - self._clock()
        if left_s > 0:
            return left_s
        self._closed_until = self._clock() + self._cool_down_s  # this caller tries; the others wait for what it finds
        return 0.0

    def succeeded(self) -> None:
        self._failed = 0

    def failed(self, started: float) -> None:
        if started <= self._failed_at:
            return
        self._failed_at = self._clock()
        self._failed += 1
        if self._failed == self._limit:
            self._closed_until = self._clock() + self._cool_down_s
