"""The configured providers, one after the other until one finds something: the WebSearch of the project."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from shared.clients.breaker import CircuitBreaker
from shared.clients.web.model import Domains, Hit, pages_of
from shared.contracts import WebPage
from shared.errors import InvalidModelReply, Misconfigured, SearchUnavailable

_log = structlog.get_logger("cairn")

_FAIR_TRIAL_S: Final = 1.0
"""A provider given less time than this is not blamed for being late."""
_MINUTE_S: Final = 60.0
_DAY_S: Final = 86_400.0


class Provider(Protocol):
    """One search engine or API. `hits` raises SearchUnavailable, Misconfigured, InvalidModelReply or TimeoutError."""

    @property
    def name(self) -> str: ...

    async def hits(self, query: str, language: str, limit: int, timeout_s: float) -> list[Hit]: ...

    async def aclose(self) -> None: ...


class Allowance:
    """Searches that one process may send to one provider: so many in any minute, and in any day. None: no bound."""

    def __init__(
        self, per_minute: int | None, per_day: int | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = [(most, span_s) for most, span_s in ((per_minute, _MINUTE_S), (per_day, _DAY_S)) if most]
        self._clock = clock
        self._taken: deque[float] = deque(maxlen=max((most for most, _ in self._bounds), default=0))

    def take(self) -> bool:
        """Whether one more may be sent now; it is counted then."""
        now = self._clock()
        if any(len(self._taken) >= most and self._taken[-most] > now - span_s for most, span_s in self._bounds):
            return False
        self._taken.append(now)
        return True


class _Turn:
    """One provider, and what keeps it from being asked: its own wish, its failures, its allowance."""

    def __init__(self, provider: Provider, allowance: Allowance, fair_s: float) -> None:
        self.provider = provider
        self._allowance = allowance
        self._fair_s = fair_s
        self._breaker = CircuitBreaker()
        self._not_before = 0.0

    async def hits(self, query: str, language: str, limit: int, timeout_s: float) -> list[Hit]:
        name = self.provider.name
        if (wait_s := max(self._not_before - time.monotonic(), self._breaker.left_s())) > 0:
            raise SearchUnavailable(f"{name} is left alone for {wait_s:.0f} s", retry_after_s=wait_s)
        if not self._allowance.take():
            raise SearchUnavailable(f"{name}: CAIRN_WEB_PER_MINUTE or CAIRN_WEB_PER_DAY is used up")
        # Last of all: whoever takes the trial of a half-open breaker makes it.
        if (wait_s := self._breaker.wait_s(fair=timeout_s >= self._fair_s)) > 0:
            raise SearchUnavailable(f"{name} is left alone for {wait_s:.0f} s", retry_after_s=wait_s)
        started = self._breaker.started()
        try:
            async with asyncio.timeout(timeout_s):
                found = await self.provider.hits(query, language, limit, timeout_s)
        except TimeoutError as error:
            if timeout_s >= _FAIR_TRIAL_S:
                self._breaker.failed(started)
            raise SearchUnavailable(f"{name} did not answer within {timeout_s:.1f} s") from error
        except SearchUnavailable as error:
            if error.retry_after_s is not None:
                self._not_before = time.monotonic() + error.retry_after_s
            self._breaker.failed(started)
            raise
        self._breaker.succeeded()
        return found


class ProviderChain:
    """Asks providers in their order. The first that finds something is enough; the others stand by."""

    def __init__(self, providers: Sequence[tuple[Provider, Allowance]], *, domains: Domains, timeout_s: float) -> None:
        """`timeout_s` bounds one provider."""
        self._turns = [_Turn(provider, allowance, min(_FAIR_TRIAL_S, timeout_s)) for provider, allowance in providers]
        self._domains = domains
        self._timeout_s = timeout_s

    async def search(self, query: str, *, language: str, limit: int, timeout_s: float) -> Sequence[WebPage]:
        """What the first provider found that found anything. Raises the only failure, or one that tells of all."""
        end = time.monotonic() + timeout_s
        failures: list[SearchUnavailable | Misconfigured | InvalidModelReply] = []
        for turn in self._turns:
            left_s = min(self._timeout_s, max(0.0, end - time.monotonic()))
            try:
                hits = await turn.hits(query, language, limit, left_s)
            except (SearchUnavailable, Misconfigured, InvalidModelReply) as error:
                _log.warning("web search provider failed", provider=turn.provider.name, error=str(error))
                failures.append(error)
            else:
                if pages := pages_of(hits, self._domains, limit):
                    return pages
        if len(failures) < len(self._turns):
            return ()
        if len(failures) == 1:
            raise failures[0]
        raise SearchUnavailable("; ".join(str(failure) for failure in failures)) from failures[0]

    async def aclose(self) -> None:
        for turn in self._turns:
            await turn.provider.aclose()
