"""What an HTTP answer means to a caller: errors translated to the project's own, Retry-After read.

`JsonService` posts JSON to one endpoint: pooled connections, a bound on calls in flight, retries with jittered backoff
inside the caller's time, and a circuit breaker.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
from pydantic import SecretStr

from shared.clients.breaker import CircuitBreaker
from shared.errors import InvalidModelReply, Misconfigured, ModelUnavailable, PermanentError, TransientError

_TRY_AGAIN: Final = frozenset({408, 425, 429})
_OUT_OF_QUOTA: Final = re.compile(r"insufficient_quota|billing_hard_limit|exceeded your current quota", re.IGNORECASE)
_NO_SUCH_MODEL: Final = re.compile(
    r"model_not_found|\bmodel\b.{0,120}(?:not found|does not exist|not a valid|unknown|not loaded)",
    re.IGNORECASE | re.DOTALL,
)
_TOLD_CHARS: Final = 200
_CONNECT_S: Final = 5.0
_BACKOFF_S: Final = 0.25
_FAIR_TRIAL_S: Final = 1.0
"""A call given less time than this says nothing about the endpoint's health when it times out."""


class RequestRefused(InvalidModelReply):
    """The endpoint refuses this request (400, 413, 422 …) and would refuse it again; `status` and `told` say why."""

    def __init__(self, message: str, *, status: int, told: str) -> None:
        super().__init__(message)
        self.status = status
        self.told = told


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible API. `base_url` ends in /v1; `setting` is the prefix of the variables that set it."""

    base_url: str
    setting: str
    api_key: SecretStr | None = None

    def url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key.get_secret_value()}"} if self.api_key is not None else {}

    def without_key(self, text: str) -> str:
        """`text` as it may be logged: some servers repeat the key in their errors."""
        key = self.api_key.get_secret_value() if self.api_key is not None else ""
        return text.replace(key, "***") if key else text


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
        self._breaker = breaker or CircuitBreaker()
        self._unavailable = unavailable

    async def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float) -> Any:
        """The decoded JSON of the reply. `timeout_s` covers waiting for a slot and every attempt.

        Raises what `unavailable` names, Misconfigured, RequestRefused or InvalidModelReply.
        """
        end = time.monotonic() + timeout_s
        for attempt in range(1, self._attempts + 1):
            if (closed_s := self._breaker.wait_s()) > 0:
                raise self._unavailable(f"{self._host} failed repeatedly, not asked again yet", retry_after_s=closed_s)
            try:
                async with self._slot(end):
                    return await self._once(path, body, min(self._timeout_s, end - time.monotonic()))
            except TransientError as error:
                wait_s = max(_BACKOFF_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), error.retry_after_s or 0.0)
                if attempt == self._attempts or time.monotonic() + wait_s >= end:
                    raise
                failure = error
            await asyncio.sleep(wait_s)
            if time.monotonic() >= end:  # a busy machine wakes late: the reason is still what failed before
                raise failure
        raise AssertionError("attempts must be at least 1")

    async def aclose(self) -> None:
        """Close the connections, if they are its own."""
        if self._owns_client:
            await self._client.aclose()

    @property
    def _host(self) -> str:
        return httpx.URL(self.endpoint.base_url).host or self.endpoint.base_url

    @asynccontextmanager
    async def _slot(self, end: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                await self._slots.acquire()
        except TimeoutError as error:
            raise self._unavailable(
                f"no free call to {self._host} in time; {self.endpoint.setting}_CONCURRENCY bounds them"
            ) from error
        try:
            yield
        finally:
            self._slots.release()

    async def _once(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Any:
        started = self._breaker.started()
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                response = await self._client.post(
                    self.endpoint.url(path),
                    json=body,
                    headers=self.endpoint.headers,
                    timeout=httpx.Timeout(max(timeout_s, 0.001), connect=min(_CONNECT_S, max(timeout_s, 0.001))),
                )
        except (TimeoutError, httpx.TimeoutException) as error:
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
            self._breaker.failed(started)
            raise self._unavailable(f"{self._host} can't be reached: {error or type(error).__name__}") from error
        return self._read(response, started)

    def _read(self, response: httpx.Response, started: float) -> Any:
        if response.status_code >= 300:
            error = self._sorted(response)
            # A 429 is a sign of life; so is every refusal.
            if response.status_code >= 500:
                self._breaker.failed(started)
            else:
                self._breaker.succeeded()
            raise error
        self._breaker.succeeded()
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
        )


def raise_for(response: httpx.Response, unavailable: type[TransientError], *, prefix: str) -> None:
    """Raises what a status of 300 or more means; `prefix` is that of the endpoint's settings."""
    if response.status_code >= 300:
        endpoint = Endpoint(str(response.request.url), prefix)
        wait_s = retry_after_s(response.headers.get("Retry-After"), now=time.time())
        raise sort_status(endpoint, response.status_code, response.text, retry_after_s=wait_s, unavailable=unavailable)


def sort_status(
    endpoint: Endpoint,
    status: int,
    text: str,
    *,
    retry_after_s: float | None = None,
    unavailable: type[TransientError] = ModelUnavailable,
) -> PermanentError | TransientError:
    """The error that an HTTP status of 300 or more and its body mean. The text names the setting to look at."""
    host = httpx.URL(endpoint.base_url).host or endpoint.base_url
    told = endpoint.without_key(_message_in(text))
    says = f"{host} answered {status}: {told}" if told else f"{host} answered {status}"
    prefix = endpoint.setting
    if status in (401, 402, 403) or (status == 429 and _OUT_OF_QUOTA.search(text)):
        return Misconfigured(f"{prefix}_API_KEY: {says}")
    if status in (400, 404) and _NO_SUCH_MODEL.search(text):
        return Misconfigured(f"{prefix}_MODEL: {says}")
    if status < 400 or status in (404, 405):
        return Misconfigured(f"{prefix}_BASE_URL (it ends in /v1) or {prefix}_MODEL: {says}")
    if status in _TRY_AGAIN or status >= 500:
        return unavailable(says, retry_after_s=retry_after_s)
    return RequestRefused(says, status=status, told=endpoint.without_key(text))


def retry_after_s(value: str | None, *, now: float) -> float | None:
    """Seconds of a Retry-After header (seconds, or an HTTP date), at least 0; None where absent or unreadable."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def open_client(concurrency: int) -> httpx.AsyncClient:
    """A client whose pool holds `concurrency` calls at once; HTTP/2 where the server offers it."""
    return httpx.AsyncClient(
        http2=True,
        limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency, keepalive_expiry=30.0),
    )


def _is_bad_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _message_in(text: str) -> str:
    """The message of an error body, in whichever of the usual places it is, on one line and shortened."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    for key in ("error", "detail", "message"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    line = " ".join(str(found).split())
    return line if len(line) <= _TOLD_CHARS else line[:_TOLD_CHARS] + "…"
