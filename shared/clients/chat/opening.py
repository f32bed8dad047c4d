"""Which chat model a process uses."""

from __future__ import annotations

import hashlib

from shared.clients.breaker import CircuitBreaker
from shared.clients.chat.failover import FailoverChat
from shared.clients.chat.http import HttpChat
from shared.clients.chat.protocol import ChatModel
from shared.clients.hedging import Hedge
from shared.clients.http import JsonService
from shared.clients.limits import CallLimit, SharedLimit
from shared.clients.status import Endpoint
from shared.runtime.common import Common
from shared.settings import ModelSettings, Prices

DEFAULT_MODEL = "default"
"""What servers with one model take for it."""


def open_chat(
    settings: ModelSettings,
    *,
    setting: str = "CAIRN_LLM",
    used_as: str = "",
    attempts: int = 3,
    common: Common | None = None,
    prices: Prices | None = None,
) -> ChatModel | None:
    """The chat model these settings name, or None where they name none. Nothing is asked yet; close it afterwards.

    `setting` begins the variables of its address, `used_as` those of its use, where they differ; `attempts` bounds the
    tries of one call. A limit over all workers is kept in `common`; without it there is none.
    """
    if settings.base_url is None:
        return None
    model = settings.model or DEFAULT_MODEL
    first = Endpoint(settings.base_url, setting, settings.api_key, used_as)
    services = [(_service(settings, first, attempts, limit=_limit(settings, model, common)), model)]
    for place, each in enumerate(settings.fallbacks, start=1):
        endpoint = Endpoint(each.base_url, f"{setting}_FALLBACKS", each.api_key, used_as or setting)
        breaker = CircuitBreaker(f"{endpoint.label}_fallback_{place}")
        services.append((_service(settings, endpoint, attempts, breaker=breaker), each.model or model))
    role = first.label
    swapped = (lambda: common.controls.model(role)) if common is not None else (lambda: None)
    chats = [
        HttpChat(service, name, swapped=swapped if place == 0 else lambda: None, prices=prices)
        for place, (service, name) in enumerate(services)
    ]
    return FailoverChat(chats) if len(chats) > 1 else chats[0]


def _service(
    settings: ModelSettings,
    endpoint: Endpoint,
    attempts: int,
    *,
    breaker: CircuitBreaker | None = None,
    limit: CallLimit | None = None,
) -> JsonService:
    return JsonService(
        endpoint,
        concurrency=settings.concurrency,
        timeout_s=settings.timeout_s,
        attempts=attempts,
        breaker=breaker,
        limit=limit,
        hedge=Hedge() if settings.hedge else None,
    )


def _limit(settings: ModelSettings, model: str, common: Common | None) -> CallLimit | None:
    """The limit of whoever pays for this endpoint and model, whether as judge or as writer."""
    if common is None or not (settings.requests_per_minute or settings.tokens_per_minute):
        return None
    payer = hashlib.sha256(f"{settings.base_url}\x1f{model}".encode()).hexdigest()[:16]
    return SharedLimit(
        common.redis,
        common.keys.limit(payer),
        requests=settings.requests_per_minute,
        tokens=settings.tokens_per_minute,
    )
