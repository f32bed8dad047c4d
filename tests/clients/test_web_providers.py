"""Tavily, Brave, Serper and ddgs: asked as they document it, and their errors sorted as they document them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException
from pydantic import ValidationError

from shared.clients.web import open_web_search
from shared.clients.web.apis import Brave, SearchApi, Serper, Tavily
from shared.clients.web.asking import HttpProvider
from shared.clients.web.chain import Allowance, ProviderChain
from shared.clients.web.keyless import DdgsProvider
from shared.clients.web.model import Domains, Hit
from shared.errors import CairnError, InvalidModelReply, Misconfigured, SearchUnavailable
from shared.settings import WebSettings
from tests.support.mock_web_search import MockWebSearch, Reply, brave, serper, tavily

KEY = "s3cret-key"
PAGES = [
    ("https://example.org/tents", "Tents", "A tent is a shelter."),
    ("https://example.net/", "Gear", "Всё о палатках."),
]
KEYED = [
    pytest.param("tavily", Tavily, tavily, id="tavily"),
    pytest.param("brave", Brave, brave, id="brave"),
    pytest.param("serper", Serper, serper, id="serper"),
]
Replying = Callable[[list[tuple[str, str, str]]], Reply]


@asynccontextmanager
async def asking(
    api: type[SearchApi], reply: Reply, **fields: Any
) -> AsyncIterator[tuple[HttpProvider, MockWebSearch]]:
    """The provider at an address on loopback."""
    settings = WebSettings(provider=api.provider, **{"api_key": KEY, **fields})
    async with MockWebSearch(reply) as site:
        provider = HttpProvider(api(settings, base_url=site.base_url))
        try:
            yield provider, site
        finally:
            await provider.aclose()


async def hits(provider: Any, language: str = "fr", limit: int = 7) -> list[Hit]:
    found: list[Hit] = await provider.hits("tents", language, limit, 5.0)
    return found


# --- how they are asked, and what they find ------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "api", "replying"), KEYED)
async def test_hits_are_read_in_order(name: str, api: type[SearchApi], replying: Replying) -> None:
    async with asking(api, replying(PAGES)) as (provider, _):
        assert [(hit.url, hit.title, hit.snippet) for hit in await hits(provider)] == PAGES
        assert provider.name == name


@pytest.mark.parametrize(("name", "api", "replying"), KEYED)
async def test_nothing_found_is_an_answer(name: str, api: type[SearchApi], replying: Replying) -> None:
    async with asking(api, replying([])) as (provider, _):
        assert await hits(provider) == []


async def test_tavily_is_asked_as_it_documents() -> None:
    async with asking(Tavily, tavily(PAGES)) as (provider, site):
        await hits(provider)
    (asked,) = site.asked
    assert (asked.method, asked.path, asked.headers["authorization"]) == ("POST", "/search", f"Bearer {KEY}")
    assert asked.body == {"query": "tents", "max_results": 7, "search_depth": "basic"}


async def test_brave_is_asked_as_it_documents() -> None:
    async with asking(Brave, brave(PAGES), region="be", safe_search="off") as (provider, site):
        await hits(provider)
        await hits(provider, language="tlh")  # it answers a language that it doesn't know with 422
    first, second = site.asked
    assert (first.method, first.path, first.headers["x-subscription-token"]) == ("GET", "/web/search", KEY)
    assert first.parameters == {
        "q": "tents",
        "count": "7",
        "safesearch": "off",
        "text_decorations": "false",
        "search_lang": "fr",
        "country": "BE",
    }
    assert "search_lang" not in second.parameters


async def test_braves_texts_are_html() -> None:
    page = ("https://example.org/", "Tents &amp; gear", "It&#x27;s a shelter.")
    async with asking(Brave, brave([page])) as (provider, _):
        (hit,) = await hits(provider)
    assert (hit.title, hit.snippet) == ("Tents & gear", "It's a shelter.")


async def test_serper_is_asked_as_it_documents() -> None:
    async with asking(Serper, serper(PAGES), region="be") as (provider, site):
        await hits(provider)
    (asked,) = site.asked
    assert (asked.method, asked.path, asked.headers["x-api-key"]) == ("POST", "/search", KEY)
    assert asked.body == {"q": "tents", "hl": "fr", "num": 7, "gl": "be"}


# --- their errors --------------------------------------------------------------------------------------------------

TAVILY_KEY = {"detail": {"error": "Unauthorized: missing or invalid API key."}}
TAVILY_PLAN = {"detail": {"error": "This request exceeds your plan's set usage limit."}}
BRAVE_KEY = {"type": "ErrorResponse", "error": {"code": "SUBSCRIPTION_TOKEN_INVALID", "status": 422}}
BRAVE_RATE = {"type": "ErrorResponse", "error": {"code": "RATE_LIMITED", "detail": "Request rate limit exceeded"}}
BRAVE_QUOTA = {"type": "ErrorResponse", "error": {"code": "QUOTA_LIMITED", "detail": "Request quota limit exceeded"}}
BRAVE_WRONG = {"type": "ErrorResponse", "error": {"code": "VALIDATION", "detail": "Unable to validate request"}}
ERRORS = [
    pytest.param(Tavily, 401, TAVILY_KEY, Misconfigured, "CAIRN_WEB_API_KEY.*Unauthorized", id="tavily, key"),
    pytest.param(Tavily, 432, TAVILY_PLAN, Misconfigured, "CAIRN_WEB_API_KEY.*used up", id="tavily, plan"),
    pytest.param(Tavily, 433, TAVILY_PLAN, Misconfigured, "CAIRN_WEB_API_KEY.*used up", id="tavily, pay as you go"),
    pytest.param(
        Tavily, 400, {"detail": {"error": "Invalid"}}, InvalidModelReply, "400.*Invalid", id="tavily, request"
    ),
    pytest.param(Tavily, 429, {"detail": {"error": "slow down"}}, SearchUnavailable, "slow down", id="tavily, rate"),
    pytest.param(Tavily, 500, b"", SearchUnavailable, "500", id="tavily, broken"),
    pytest.param(Brave, 422, BRAVE_KEY, Misconfigured, "CAIRN_WEB_API_KEY.*not known", id="brave, key"),
    pytest.param(Brave, 429, BRAVE_RATE, SearchUnavailable, "429.*rate limit", id="brave, rate"),
    pytest.param(Brave, 429, BRAVE_QUOTA, Misconfigured, "CAIRN_WEB_API_KEY.*used up", id="brave, quota"),
    pytest.param(Brave, 422, BRAVE_WRONG, InvalidModelReply, "422.*validate", id="brave, request"),
    pytest.param(Brave, 404, b"", Misconfigured, "CAIRN_WEB_PROVIDER", id="brave, moved"),
    pytest.param(Serper, 403, {"message": "Unauthorized."}, Misconfigured, "CAIRN_WEB_API_KEY", id="serper, key"),
    pytest.param(Serper, 400, {"message": "Not enough credits"}, Misconfigured, "used up", id="serper, credits"),
    pytest.param(Serper, 400, {"message": "Missing query"}, InvalidModelReply, "Missing query", id="serper, request"),
    pytest.param(Serper, 402, b"", Misconfigured, "CAIRN_WEB_API_KEY", id="serper, unpaid"),
    pytest.param(Serper, 200, b"<html>hello</html>", InvalidModelReply, "not its JSON", id="serper, HTML"),
    pytest.param(Serper, 200, b"", InvalidModelReply, "not its JSON", id="serper, empty"),
    pytest.param(Brave, 200, {"results": []}, InvalidModelReply, "not its JSON", id="brave, another shape"),
    pytest.param(Brave, 200, {"type": "search", "web": {}}, InvalidModelReply, "not its JSON", id="brave, no results"),
    pytest.param(Tavily, 200, [], InvalidModelReply, "not its JSON", id="tavily, a list"),
]


@pytest.mark.parametrize(("api", "status", "body", "kind", "says"), ERRORS)
async def test_errors_are_sorted_and_name_real_settings(
    api: type[SearchApi], status: int, body: Any, kind: type[CairnError], says: str
) -> None:
    async with asking(api, Reply(body, status=status)) as (provider, _):
        with pytest.raises(kind, match=says) as failed:
            await hits(provider)
    assert "MODEL" not in str(failed.value)


async def test_a_key_that_a_server_repeats_is_not_told_on() -> None:
    async with asking(Tavily, Reply({"detail": {"error": f"no such key: {KEY}"}}, status=401)) as (provider, _):
        with pytest.raises(Misconfigured) as failed:
            await hits(provider)
    assert KEY not in str(failed.value)


async def test_a_key_does_not_follow_a_redirect() -> None:
    async with MockWebSearch(Reply()) as elsewhere:
        headers = {"Location": f"{elsewhere.base_url}/search"}
        async with asking(Serper, Reply(status=302, headers=headers)) as (provider, _):
            with pytest.raises(Misconfigured, match="CAIRN_WEB_PROVIDER"):
                await hits(provider)
    assert elsewhere.asked == []


async def test_of_several_keys_the_right_one_is_named() -> None:
    fields: dict[str, Any] = {"tavily_api_key": KEY, "provider": "tavily,brave", "brave_api_key": "other"}
    async with MockWebSearch(Reply(status=401)) as site:
        provider = HttpProvider(Tavily(WebSettings(**fields), base_url=site.base_url))
        with pytest.raises(Misconfigured, match="CAIRN_WEB_TAVILY_API_KEY"):
            await hits(provider)
        await provider.aclose()


# --- ddgs ----------------------------------------------------------------------------------------------------------


class FakeDdgs:
    """The library's class, answering or raising what it is told."""

    def __init__(self, answer: list[dict[str, str]] | Exception | threading.Event) -> None:
        self.answer = answer
        self.asked: list[tuple[int, str, dict[str, Any]]] = []

    def __call__(self, *, timeout: int) -> FakeDdgs:
        self.timeout_s = timeout
        return self

    def text(self, query: str, **options: Any) -> list[dict[str, str]]:
        self.asked.append((self.timeout_s, query, options))
        if isinstance(self.answer, threading.Event):
            self.answer.wait(10)
            return []
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@asynccontextmanager
async def keyless(fake: FakeDdgs, **fields: Any) -> AsyncIterator[DdgsProvider]:
    provider = DdgsProvider(WebSettings(provider="ddgs", **fields), opened=fake)
    try:
        yield provider
    finally:
        await provider.aclose()


@pytest.mark.parametrize(
    ("language", "region", "asked"), [("en", None, "us-en"), ("fr", None, "fr-fr"), ("fr", "be", "be-fr")]
)
async def test_ddgs_is_asked_as_it_documents(language: str, region: str | None, asked: str) -> None:
    fake = FakeDdgs([{"href": url, "title": title, "body": text} for url, title, text in PAGES])
    async with keyless(fake, region=region, safe_search="strict") as provider:
        found = await hits(provider, language=language)
    assert [(hit.url, hit.title, hit.snippet) for hit in found] == PAGES
    assert fake.asked == [(5, "tents", {"region": asked, "safesearch": "on", "max_results": 7})]


@pytest.mark.parametrize("error", [RatelimitException("202"), TimeoutException("late"), DDGSException("broken")])
async def test_ddgs_failing_is_worth_another_try(error: Exception) -> None:
    async with keyless(FakeDdgs(error)) as provider:
        with pytest.raises(SearchUnavailable, match=f"ddgs.*{error}"):
            await hits(provider)


async def test_ddgs_says_by_an_exception_that_there_is_nothing() -> None:
    async with keyless(FakeDdgs(DDGSException("No results found."))) as provider:
        assert await hits(provider) == []


async def test_ddgs_hanging_holds_nobody() -> None:
    hang = threading.Event()
    async with keyless(FakeDdgs(hang)) as provider:
        chain = ProviderChain([(provider, Allowance(None, None))], domains=Domains(), timeout_s=0.1)
        with pytest.raises(SearchUnavailable, match="ddgs did not answer"):
            await chain.search("tents", language="en", limit=5, timeout_s=5)
        hang.set()


# --- which of them -------------------------------------------------------------------------------------------------


async def test_the_web_is_off_unless_a_provider_is_set() -> None:
    assert open_web_search(WebSettings(base_url="http://127.0.0.1:1")) is None
    assert open_web_search(WebSettings(provider="none")) is None


async def test_every_provider_can_be_opened() -> None:
    keys: dict[str, Any] = {f"{name}_api_key": KEY for name in ("tavily", "brave", "serper")}
    settings = WebSettings(provider="searxng, Tavily,brave,serper,ddgs", base_url="http://127.0.0.1:1", **keys)
    assert settings.provider == ("searxng", "tavily", "brave", "serper", "ddgs")
    web = open_web_search(settings)
    assert web is not None
    await web.aclose()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"provider": "searxng"}, "CAIRN_WEB_BASE_URL"),
        ({"provider": "tavily"}, "needs CAIRN_WEB_API_KEY"),
        ({"provider": "ddgs,brave"}, "needs CAIRN_WEB_API_KEY"),
        ({"provider": "tavily,brave", "api_key": KEY}, "needs CAIRN_WEB_TAVILY_API_KEY"),
        ({"provider": "tavily,brave", "tavily_api_key": KEY}, "needs CAIRN_WEB_BRAVE_API_KEY"),
        ({"provider": "altavista"}, "provider"),
        ({"region": "Belgium"}, "region"),
    ],
)
def test_what_is_missing_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        WebSettings(**fields)
