"""What an HTTP status means to a caller: the project's own errors, with the setting to look at; Retry-After read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import unquote_plus

import httpx
from pydantic import SecretStr

from shared.errors import InvalidModelReply, Misconfigured, ModelUnavailable, PermanentError, TransientError

_TRY_AGAIN: Final = frozenset({408, 425, 429})
_OUT_OF_QUOTA: Final = re.compile(r"insufficient_quota|billing_hard_limit|exceeded your current quota", re.IGNORECASE)
_NO_SUCH_MODEL: Final = re.compile(
    r"model_not_found|\bmodel\b.{0,120}(?:not found|does not exist|not a valid|unknown|not loaded)",
    re.IGNORECASE | re.DOTALL,
)
_TOLD_CHARS: Final = 200
_ECHO_CHARS: Final = 12
"""So many characters in a row that stand in the request are an echo of it, and not said by chance."""


class RequestRefused(InvalidModelReply):
    """The endpoint refuses this request (400, 413, 422 …) and would refuse it again; `status` and `told` say why."""

    def __init__(self, message: str, *, status: int, told: str) -> None:
        super().__init__(message)
        self.status = status
        self.told = told


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible API. `base_url` ends in /v1; `setting` begins the variables that set address and key.

    `used_as` begins those that say how it is used, where they differ: a judge may live on the chat model's endpoint.
    """

    base_url: str
    setting: str
    api_key: SecretStr | None = None
    used_as: str = ""

    @property
    def usage(self) -> str:
        return self.used_as or self.setting

    @property
    def label(self) -> str:
        """As metrics name it: judge, llm, embed …"""
        return self.usage.removeprefix("CAIRN_").lower()

    def url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key.get_secret_value()}"} if self.api_key is not None else {}

    def without_key(self, text: str) -> str:
        """`text` as it may be logged: some servers repeat the key in their errors."""
        key = self.api_key.get_secret_value() if self.api_key is not None else ""
        return text.replace(key, "***") if key else text


def sort_status(
    endpoint: Endpoint,
    status: int,
    text: str,
    *,
    retry_after_s: float | None = None,
    unavailable: type[TransientError] = ModelUnavailable,
    key_setting: str | None = None,
    address_setting: str | None = None,
    request: httpx.Request | None = None,
) -> PermanentError | TransientError:
    """The error that an HTTP status of 300 or more and its body mean. The text names the setting to look at.

    What the server repeats of `request` is left out of it: questions and passages don't belong into logs.
    `key_setting` and `address_setting` name the variables where they are not those of an OpenAI-compatible endpoint.
    """
    host = httpx.URL(endpoint.base_url).host or endpoint.base_url
    told = endpoint.without_key(_message_in(text))
    if request is not None:
        told = _without_echo(told, "\n".join(_texts_of(request)))
    says = f"{host} answered {status}: {told}" if told else f"{host} answered {status}"
    prefix = endpoint.setting
    if status in (401, 402, 403) or (status == 429 and _OUT_OF_QUOTA.search(text)):
        return Misconfigured(f"{key_setting or f'{prefix}_API_KEY'}: {says}")
    if address_setting is None and status in (400, 404) and _NO_SUCH_MODEL.search(text):
        return Misconfigured(f"{prefix}_MODEL: {says}")
    if status < 400 or status in (404, 405):
        where = address_setting or f"{prefix}_BASE_URL (it ends in /v1) or {prefix}_MODEL"
        return Misconfigured(f"{where}: {says}")
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


def _texts_of(request: httpx.Request) -> Iterator[str]:
    """What a request says, plain and escaped; not its parameters and the model's name: their faults must be told."""
    yield unquote_plus(request.url.query.decode())
    left: list[Any] = [json.loads(request.content or b"null")]
    while left:
        match left.pop():
            case str(text):
                yield from (text, json.dumps(text, ensure_ascii=False))
            case dict(fields):
                left += [value for name, value in fields.items() if name != "model"]
            case list(values):
                left += values


def _without_echo(text: str, sent: str) -> str:
    """`text` with an ellipsis for each stretch of it that was sent."""
    kept = [True] * len(text)
    for at in range(len(text) - _ECHO_CHARS + 1):
        if text[at : at + _ECHO_CHARS] in sent:
            kept[at : at + _ECHO_CHARS] = [False] * _ECHO_CHARS
    return "".join(char if kept[at] else "…" for at, char in enumerate(text) if kept[at] or at == 0 or kept[at - 1])
