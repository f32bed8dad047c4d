"""What reading a page gives: the page, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from shared.errors import PermanentError, TransientError

Reason = Literal[
    "address",  # no URL, or one that means different things to different readers
    "scheme",
    "userinfo",
    "port",
    "private address",
    "redirects",  # too many, or one that leads nowhere
    "robots",
    "status",  # 404, 401, …
    "content type",
    "too big",
    "broken",  # what came is not what it says it is
    "too slow to read",  # extraction took longer than it may
    "nothing to read",  # a login wall, an empty page
]


class PageRefused(PermanentError):
    """The page isn't read, now or later; `reason` says which of few kinds it is, the text what exactly."""

    def __init__(self, reason: Reason, told: str) -> None:
        super().__init__(f"{reason}: {told}")
        self.reason: Reason = reason
        self.told = told

    def __reduce__(self) -> tuple[type[PageRefused], tuple[Reason, str]]:
        # It comes from another process, and an exception is unpickled by its arguments.
        return type(self), (self.reason, self.told)


class PageUnavailable(TransientError):
    """The site can't be reached, is too slow, or answers 408, 425, 429 or 5xx."""


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page that was fetched and read. All of it is a stranger's text: data, never instructions."""

    url: str
    """Where it was found after all redirects, without a fragment."""
    title: str
    site: str
    author: str
    published: str
    """ISO date; empty where the page doesn't say."""
    language: str
    fetched_at: float
    """Seconds since the epoch."""
    passages: tuple[str, ...]
    """Its text, split as the ingester splits documents; at least one."""


class PageReader(Protocol):
    """Reads web pages."""

    async def read(self, url: str, *, timeout_s: float) -> ReadPage:
        """Raises PageRefused (another try would end the same way) or PageUnavailable (it might not)."""
        ...

    async def aclose(self) -> None: ...
