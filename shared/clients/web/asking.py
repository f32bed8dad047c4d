"""One request to a search API, within bounds: what it raises is the project's own, and names the setting to look at."""

from __future__ import annotations

import json
import time
from typing import Final

import httpx

from shared.clients.status import retry_after_s, sort_status
from shared.clients.web.apis import SearchApi
from shared.clients.web.model import Hit
from shared.errors import InvalidModelReply, Misconfigured, PermanentError, SearchUnavailable, TransientError

MAX_REPLY_BYTES: Final = 2_000_000


class HttpProvider:
    """A provider that is asked by HTTP. Redirects are not followed: a key goes to its own address only."""

    def __init__(self, api: SearchApi) -> None:
        self._api = api
        self._client = httpx.AsyncClient()

    @property
    def name(self) -> str:
        return self._api.provider

    async def hits(self, query: str, language: str, limit: int, timeout_s: float) -> list[Hit]:
        """The hits in the provider's order."""
        try:
            asked = self._client.build_request(
                **self._api.request(query, language, limit), timeout=httpx.Timeout(timeout_s)
            )
            # Never compressed: a few bytes that become many are not worth what they save here.
            asked.headers["Accept-Encoding"] = "identity"
            response = await self._client.send(asked, stream=True)
            try:
                body = await self._within_bounds(response)
            finally:
                await response.aclose()
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeEncodeError) as error:
            told = self._api.endpoint.without_key(str(error))
            raise Misconfigured(
                f"{self._api.address_setting} or {self._api.key_setting} can't be used: {told}"
            ) from error
        except httpx.TimeoutException as error:
            raise TimeoutError from error  # as the caller's own bound, whichever comes first
        except httpx.TransportError as error:
            raise SearchUnavailable(f"{self.name} can't be reached: {error or type(error).__name__}") from error
        if response.status_code >= 300:
            raise self._sorted(response, body.decode("utf-8", "replace"))
        return self._read(body)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _within_bounds(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > MAX_REPLY_BYTES:
                raise InvalidModelReply(f"{self.name}'s reply has more than {MAX_REPLY_BYTES} bytes")
        return bytes(body)

    def _sorted(self, response: httpx.Response, text: str) -> PermanentError | TransientError:
        if (wrong := self._api.wrong_setting(response.status_code, text)) is not None:
            return Misconfigured(f"{self._api.key_setting}: {wrong} ({self.name} answered {response.status_code})")
        return sort_status(
            self._api.endpoint,
            response.status_code,
            text,
            retry_after_s=retry_after_s(response.headers.get("Retry-After"), now=time.time()),
            unavailable=SearchUnavailable,
            key_setting=self._api.key_setting,
            address_setting=self._api.address_setting,
            request=response.request,
        )

    def _read(self, body: bytes) -> list[Hit]:
        try:
            return list(self._api.hits(json.loads(body)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidModelReply(
                f"{self.name}'s reply is not its JSON; is {self._api.address_setting} right?"
            ) from error
