"""`JsonService` posts JSON to one endpoint and holds up when the endpoint does not.

Pooled connections, a bound on calls in flight, retries with jittered backoff inside the caller's time, a circuit
breaker; where they are set, a limit shared with other processes (limits.py) and second calls for late replies
(hedging.py).
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import httpx
from httpx_sse import EventSource
from prometheus_client import Counter

from shared.clients.breaker import CircuitBreaker, RetryBudget
from shared.clients.hedging import Hedge
from shared.clients.limits import CallLimit
from shared.clients.status import Endpoint, retry_after_s, sort_status
from shared.errors import InvalidModelReply, Misconfigured, ModelUnavailable, PermanentError, TransientError

CALLS = Counter("cairn_calls", "Requests to endpoints, by what became of them.", ("endpoint", "outcome"))

_CONNECT_S: Final = 5.0
_BACKOFF_S: Final = 0.25
_FAIR_TRIAL_S: Final = 1.0
"""A call given less time than this says nothing about the endpoint's health when it times out."""


class Hearer(Protocol):
    """Who listens to a reply that is streamed."""

    def begin(self) -> None:
        """A try begins; what an earlier one said is void."""

    def hear(self, event: Any) -> None:
        """The decoded JSON of one server-sent event."""

    def end(self) -> None:
        """The stream is over. Raises what it means if that was too early."""


class JsonService:
    """Posts JSON to one endpoint. At most `concurrency` calls are in flight, over everybody who shares the instance."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        client: httpx.AsyncClient | None = None,
        concurrency: int,
        timeout_s: float,
        attempts: int = 3,
        breaker: CircuitBreaker | None = None,
        unavailable: type[TransientError] = ModelUnavailable,
        limit: CallLimit | None = None,
        hedge: Hedge | None = None,
    ) -> None:
        """`timeout_s` bounds one attempt; `unavailable` is raised for what another try may mend.

        A `client` that is given must allow `concurrency` connections; it stays the caller's to close.
        """
        self.endpoint = endpoint
        self._owns_client = client is None
        self._client = client or open_client(concurrency)
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._breaker = breaker or CircuitBreaker(endpoint.label)
        self._retries = RetryBudget()
        self._unavailable = unavailable
        self._limit = limit
        self._hedge = hedge

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout_s: float,
        tokens: int = 0,
        needed: Callable[[], bool] | None = None,
        hearer: Hearer | None = None,
    ) -> Any:
        """The decoded JSON of the reply, or None where `hearer` heard it as server-sent events.

        `timeout_s` covers waiting for a slot and every attempt. Cancelling closes the stream.

        `tokens` is what the call counts for in a limit of tokens. `needed` tells, before each retry, whether the reply
        still matters: if not, it is made only as long as retries are few (RetryBudget). Without it, it always matters.

        Raises what `unavailable` names, Misconfigured, RequestRefused or InvalidModelReply.
        """
        end = time.monotonic() + timeout_s
        self._retries.called()
        for attempt in range(1, self._attempts + 1):
            try:
                return await self._attempt(path, body, tokens, end, hearer)
            except TransientError as error:
                wait_s = max(_BACKOFF_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), error.retry_after_s or 0.0)
                if attempt == self._attempts or time.monotonic() + wait_s >= end or not self._worth(needed):
                    raise
                failure = error
            await asyncio.sleep(wait_s)
            # A busy machine wakes late: the reason is still what failed before.
            if time.monotonic() >= end or not self._worth(needed):
                raise failure
            self._retries.take()
        raise AssertionError("attempts must be at least 1")

    async def aclose(self) -> None:
        """Close the connections, if they are its own."""
        if self._owns_client:
            await self._client.aclose()

    def _worth(self, needed: Callable[[], bool] | None) -> bool:
        return needed is None or self._retries.left or needed()

    @property
    def _host(self) -> str:
        return httpx.URL(self.endpoint.base_url).host or self.endpoint.base_url

    async def _attempt(self, path: str, body: Mapping[str, Any], tokens: int, end: float, hearer: Hearer | None) -> Any:
        self._refuse_for(self._breaker.left_s())

        async def call() -> Any:
            async with self._slot(tokens, end):
                timeout_s = min(self._timeout_s, end - time.monotonic())
                fair = timeout_s >= min(_FAIR_TRIAL_S, self._timeout_s)
                self._refuse_for(self._breaker.wait_s(fair=fair))  # it may have opened while this waited for its slot
                return await self._once(path, body, timeout_s, hearer)

        if self._hedge is None or hearer is not None:  # two streams can't be heard at once
            return await call()
        return await self._hedge.first_of(call, lambda: not self._slots.locked() and self._retries.take())

    def _refuse_for(self, seconds: float) -> None:
        if seconds > 0:
            raise self._unavailable(f"{self._host} failed repeatedly, not asked again yet", retry_after_s=seconds)

    @asynccontextmanager
    async def _slot(self, tokens: int, end: float) -> AsyncIterator[None]:
        if not await _in_time(self._slots.acquire(), end):
            raise self._unavailable(
                f"no free call to {self._host} in time; {self.endpoint.usage}_CONCURRENCY bounds them"
            )
        try:
            while self._limit is not None and (wait_s := await self._limit.take(tokens)) > 0:
                if time.monotonic() + wait_s >= end:
                    raise self._unavailable(
                        f"{self.endpoint.usage}_REQUESTS_PER_MINUTE or _TOKENS_PER_MINUTE is used up",
                        retry_after_s=wait_s,
                    )
                await asyncio.sleep(wait_s)
            yield
        finally:
            self._slots.release()

    async def _once(self, path: str, body: Mapping[str, Any], timeout_s: float, hearer: Hearer | None) -> Any:
        started = self._breaker.started()
        try:
            async with (
                asyncio.timeout(max(0.0, timeout_s)),
                self._client.stream(
                    "POST",
                    self.endpoint.url(path),
                    json=body,
                    headers=self.endpoint.headers,
                    timeout=httpx.Timeout(max(timeout_s, 0.001), connect=min(_CONNECT_S, max(timeout_s, 0.001))),
                ) as response,
            ):
                if hearer is not None and response.status_code < 300 and _is_stream(response):
                    await self._hear(response, hearer)
                else:
                    await response.aread()
        except (TimeoutError, httpx.TimeoutException) as error:
            self._count("timeout")
            if timeout_s >= _FAIR_TRIAL_S:
                self._breaker.failed(started)
            raise self._unavailable(f"{self._host} did not answer within {timeout_s:.1f} s") from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError, UnicodeEncodeError) as error:
            raise Misconfigured(
                f"{self.endpoint.setting}_BASE_URL or {self.endpoint.setting}_API_KEY can't be used: "
                f"{self.endpoint.without_key(str(error))}"
            ) from error
        except httpx.TransportError as error:
            if _is_bad_certificate(error):
                raise Misconfigured(f"{self.endpoint.setting}_BASE_URL: {self._host}'s certificate: {error}") from error
            self._count("unreachable")
            self._breaker.failed(started)
            raise self._unavailable(f"{self._host} can't be reached: {error or type(error).__name__}") from error
        return self._read(response, started)

    async def _hear(self, response: httpx.Response, hearer: Hearer) -> None:
        hearer.begin()
        async for event in EventSource(response).aiter_sse():
            if event.data.strip() == "[DONE]":
                break
            try:
                hearer.hear(json.loads(event.data))
            except (ValueError, RecursionError) as error:
                raise InvalidModelReply(f"{self._host} streams something that is not JSON") from error
        hearer.end()

    def _read(self, response: httpx.Response, started: float) -> Any:
        if response.status_code >= 300:
            self._count("429" if response.status_code == 429 else f"{response.status_code // 100}xx")
            # A 429 is a sign of life; so is every refusal.
            if response.status_code >= 500:
                self._breaker.failed(started)
            else:
                self._breaker.succeeded()
            raise self._sorted(response)
        self._count("ok")
        self._breaker.succeeded()
        if _is_stream(response):
            return None
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise InvalidModelReply(f"{self._host} answered something that is not JSON") from error

    def _sorted(self, response: httpx.Response) -> PermanentError | TransientError:
        return sort_status(
            self.endpoint,
            response.status_code,
            response.text,
            retry_after_s=retry_after_s(response.headers.get("Retry-After"), now=time.time()),
            unavailable=self._unavailable,
            request=response.request,
        )

    def _count(self, outcome: str) -> None:
        CALLS.labels(self.endpoint.label, outcome).inc()


def open_client(concurrency: int) -> httpx.AsyncClient:
    """A client whose pool holds `concurrency` calls at once; HTTP/2 where the server offers it."""
    return httpx.AsyncClient(
        http2=True,
        limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency, keepalive_expiry=30.0),
    )


def _is_stream(response: httpx.Response) -> bool:
    return str(response.headers.get("Content-Type", "")).startswith("text/event-stream")


async def _in_time(acquiring: Any, end: float) -> bool:
    try:
        async with asyncio.timeout(max(0.0, end - time.monotonic())):
            await acquiring
    except TimeoutError:
        return False
    return True


def _is_bad_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
