"""Waiting for a condition instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def wait_until(condition: Callable[[], Awaitable[T | None]], *, within_s: float = 10.0) -> T: ...
@overload
async def wait_until(condition: Callable[[], T | None], *, within_s: float = 10.0) -> T: ...


async def wait_until(condition: Callable[[], Any], *, within_s: float = 10.0) -> Any:
    """The condition's first true value. Fails, naming the condition, when there is none in time."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        value = await found if inspect.isawaitable(found) else found
        if value:
            return value
        if time.monotonic() > deadline:
            source = inspect.getsource(condition).strip() if inspect.isfunction(condition) else repr(condition)
            raise AssertionError(f"not within {within_s} s: {source}")
        await asyncio.sleep(0.01)
