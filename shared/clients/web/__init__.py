"""Web search: `open_web_search(settings)`, then `search(query, …)`."""

from __future__ import annotations

from shared.clients.web.apis import Brave, Searxng, Serper, Tavily
from shared.clients.web.asking import HttpProvider
from shared.clients.web.chain import Allowance, Provider, ProviderChain
from shared.clients.web.keyless import DdgsProvider
from shared.clients.web.model import Domains, WebSearch
from shared.settings import WebProvider, WebSettings

__all__ = ["WebSearch", "open_web_search"]

_APIS = {api.provider: api for api in (Searxng, Tavily, Brave, Serper)}


def open_web_search(settings: WebSettings) -> WebSearch | None:
    """The configured providers, in their order; None where the web is off. Nothing is asked yet."""
    if not settings.provider:
        return None
    providers = [
        (_opened(name, settings), Allowance(settings.per_minute, settings.per_day)) for name in settings.provider
    ]
    domains = Domains(settings.allow_domains, settings.deny_domains)
    return ProviderChain(providers, domains=domains, timeout_s=settings.timeout_s)


def _opened(name: WebProvider, settings: WebSettings) -> Provider:
    return DdgsProvider(settings) if name == "ddgs" else HttpProvider(_APIS[name](settings))
