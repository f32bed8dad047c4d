"""What is remembered for a while, and how many at most."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Memory(Generic[T]):
    """Values by key until their time is over; beyond `size` the one that was used longest ago goes."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, key: str) -> T | None:
        until, value = self._kept.get(key, (0.0, None))
        if value is None or self._clock() >= until:
            self._kept.pop(key, None)
            return None
        self._kept.move_to_end(key)
        return value

    def put(self, key: str, value: T, ttl_s: float) -> None:
        self._kept[key] = (self._clock() + ttl_s, value)
        self._kept.move_to_end(key)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
