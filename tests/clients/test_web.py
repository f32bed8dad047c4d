"""SearXNG's client, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from services.websearch.decision import passages_of
from shared.clients.web import MAX_REPLY_BYTES, MAX_SNIPPET_CHARS, SearxngSearch, open_web_search
from shared.contracts import WebPage
from shared.errors import InvalidModelReply, Misconfigured, SearchUnavailable
from shared.settings import WebSettings
from tests.support.bus import header


@dataclass
class Site:
    """An HTTP server that gives every request the same answer, and remembers the paths."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False
    cut: bool = False
    base_url: str = ""
    paths: list[str] = field(default_factory=list)


@asynccontextmanager
async def serving(body: bytes | Any, **fields: Any) -> AsyncIterator[Site]:
    """A site on loopback; a body that is not bytes goes out as JSON."""
    site = Site(body if isinstance(body, bytes) else json.dumps(body).encode(), **fields)
    tasks: set[asyncio.Task[None] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            site.paths.append(head.split(b" ", 2)[1].decode())
            if site.silent:
                await asyncio.Event().wait()
            if not site.cut:
                headers = {"Content-Length": str(len(site.body)), "Connection": "close", **site.headers}
                lines = [f"HTTP/1.1 {site.status} Mock", *(f"{name}: {value}" for name, value in headers.items())]
                writer.write("\r\n".join([*lines, "", ""]).encode() + site.body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client or the test is done
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    site.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield site
    finally:
        server.close()
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)


async def search(
    site: Site, query: str = "tents", *, language: str = "en", limit: int = 5, **fields: Any
) -> list[WebPage]:
    client = SearxngSearch(WebSettings(provider="searxng", **{"base_url": site.base_url, **fields}))
    try:
        return list(await client.search(query, language=language, limit=limit))
    finally:
        await client.aclose()


def hit(url: str = "https://example.org/tents", title: str = "Tents", content: str = "A tent is a shelter.") -> Any:
    """A result as SearXNG gives it, with some of the fields that nobody reads."""
    return {"url": url, "title": title, "content": content, "engine": "mojeek", "score": 1.5, "parsed_url": ["https"]}


def reply(*hits: Any, **fields: Any) -> dict[str, Any]:
    return {"query": "tents", "number_of_results": 0, "results": list(hits), "unresponsive_engines": [], **fields}


# --- good replies --------------------------------------------------------------------------------------------------


async def test_hits_become_pages_in_the_engines_order() -> None:
    async with serving(reply(hit(), hit("http://example.net/", " Gear ", " Всё о палатках. "))) as site:
        pages = await search(site)
    assert pages == [
        WebPage(url="https://example.org/tents", title="Tents", snippet="A tent is a shelter."),
        WebPage(url="http://example.net/", title="Gear", snippet="Всё о палатках."),
    ]


async def test_the_request_is_searxngs() -> None:
    async with serving(reply()) as site:
        await search(site, "où est-ce & pourquoi?", language="fr", base_url=f"{site.base_url}/searx/")
    (path,) = site.paths
    assert urlsplit(path).path == "/searx/search"
    assert parse_qs(urlsplit(path).query) == {
        "q": ["où est-ce & pourquoi?"],
        "format": ["json"],
        "language": ["fr"],
        "safesearch": ["1"],
    }


async def test_no_more_pages_than_asked_for() -> None:
    async with serving(reply(*(hit(f"https://example.org/{n}") for n in range(30)))) as site:
        pages = await search(site, limit=3)
    assert [page.url for page in pages] == [f"https://example.org/{n}" for n in range(3)]


async def test_nothing_found_is_an_answer() -> None:
    async with serving(reply()) as site:
        assert await search(site) == []


async def test_silent_engines_do_not_matter_where_others_answered() -> None:
    async with serving(reply(hit(), unresponsive_engines=[["bing", "timeout"]])) as site:
        assert len(await search(site)) == 1


async def test_a_page_counts_once_with_its_best_rank() -> None:
    async with serving(reply(hit(content="first"), hit("https://b.example/"), hit(content="again"))) as site:
        pages = await search(site)
    assert [page.snippet for page in pages] == ["first", "A tent is a shelter."]


NOT_A_PAGE = [
    pytest.param(hit("javascript:alert(1)"), id="javascript"),
    pytest.param(hit("JaVaScRiPt:alert(1)//https://example.org"), id="javascript, hidden"),
    pytest.param(hit("data:text/html,<script>"), id="data"),
    pytest.param(hit("file:///etc/passwd"), id="file"),
    pytest.param(hit("ftp://example.org/"), id="ftp"),
    pytest.param(hit("//example.org/"), id="no scheme"),
    pytest.param(hit(""), id="no address"),
    pytest.param(hit("http://[not-an-address/"), id="broken address"),
    pytest.param(hit(content=" \n"), id="no excerpt"),
    pytest.param({"url": None, "title": None, "content": None}, id="nulls"),
    pytest.param({}, id="empty"),
    pytest.param("https://example.org/", id="a string"),
    pytest.param(None, id="null"),
]


@pytest.mark.parametrize("bad", NOT_A_PAGE)
async def test_what_is_no_page_is_left_out(bad: Any) -> None:
    async with serving(reply(bad, hit("https://good.example/"))) as site:
        pages = await search(site)
    assert [page.url for page in pages] == ["https://good.example/"]


async def test_a_page_without_a_title_is_called_by_its_address() -> None:
    async with serving(reply(hit(title=""))) as site:
        (page,) = await search(site)
    assert page.title == page.url


async def test_a_long_excerpt_is_cut() -> None:
    async with serving(reply(hit(content="x" * 50_000))) as site:
        (page,) = await search(site)
    assert len(page.snippet) == MAX_SNIPPET_CHARS


async def test_half_a_character_does_not_break_the_job() -> None:
    """JSON can escape half of a surrogate pair; such text can't be written as UTF-8, so not into a stream either."""
    async with serving(
        b'{"results":[{"url":"https://a.example/\\ud800","title":"\\udc00","content":"a\\ud83d"}]}'
    ) as site:
        pages = await search(site)
    for passage in passages_of(pages, header()):
        passage.model_dump_json()


# --- bad replies ---------------------------------------------------------------------------------------------------


async def test_403_names_the_line_of_settings_yml() -> None:
    async with serving(b"<h1>403 Forbidden</h1>", status=403) as site:
        with pytest.raises(Misconfigured, match=r"json.*search: formats:.*settings\.yml"):
            await search(site)


async def test_429_tells_how_long_to_wait() -> None:
    async with serving(b"Too Many Requests", status=429, headers={"Retry-After": "7"}) as site:
        with pytest.raises(SearchUnavailable, match="429") as away:
            await search(site)
    assert away.value.retry_after_s == 7.0


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_broken_server_is_worth_another_try(status: int) -> None:
    async with serving(b"oops", status=status) as site:
        with pytest.raises(SearchUnavailable, match=str(status)):
            await search(site)


@pytest.mark.parametrize("status", [302, 401, 404])
async def test_a_wrong_address_or_key_names_its_setting(status: int) -> None:
    async with serving(b"", status=status, headers={"Location": "http://elsewhere.example/"}) as site:
        with pytest.raises(Misconfigured, match="CAIRN_WEB_"):
            await search(site)


UNREADABLE = [
    pytest.param(b"<!doctype html><title>SearXNG</title>", id="HTML"),
    pytest.param(b"", id="empty"),
    pytest.param(b"\xff\xfe\x00", id="binary"),
    pytest.param(b"[" * 100_000, id="deep"),
    pytest.param(b"[]", id="a list"),
    pytest.param(b"null", id="null"),
    pytest.param(b"{}", id="no results"),
    pytest.param(b'{"results": null}', id="null results"),
    pytest.param(b'{"results": 7}', id="a number of results"),
]


@pytest.mark.parametrize("body", UNREADABLE)
async def test_what_is_not_searxngs_json_is_said_so(body: bytes) -> None:
    async with serving(body) as site:
        with pytest.raises(InvalidModelReply, match="CAIRN_WEB_BASE_URL"):
            await search(site)


SILENT_ENGINES = [
    pytest.param([["google", "CAPTCHA"], ["bing", "timeout"]], "google, bing", id="pairs"),
    pytest.param([[f"engine-{n}", "timeout"] for n in range(40)], "engine-4$", id="many"),
    pytest.param([[]], "engines don't answer", id="an empty pair"),
    pytest.param({"google": "CAPTCHA"}, "engines don't answer", id="another shape"),
    pytest.param([7], "engines don't answer", id="numbers"),
]


@pytest.mark.parametrize(("engines", "named"), SILENT_ENGINES)
async def test_no_hits_because_the_engines_are_silent_is_worth_another_try(engines: Any, named: str) -> None:
    async with serving(reply(unresponsive_engines=engines)) as site:
        with pytest.raises(SearchUnavailable, match=named):
            await search(site)


async def test_a_huge_reply_is_refused() -> None:
    async with serving(reply(hit(content="x" * MAX_REPLY_BYTES))) as site:
        with pytest.raises(InvalidModelReply, match=str(MAX_REPLY_BYTES)):
            await search(site)


async def test_nobody_listens() -> None:
    async with serving(b"") as site:
        pass
    with pytest.raises(SearchUnavailable, match=r"SearXNG at http://127\.0\.0\.1"):
        await search(site)


async def test_a_silent_server_is_left_in_time() -> None:
    async with serving(b"", silent=True) as site:
        with pytest.raises(SearchUnavailable, match="Timeout"):
            await search(site, timeout_s=0.05)


async def test_a_connection_that_is_cut_is_worth_another_try() -> None:
    async with serving(b"", cut=True) as site:
        with pytest.raises(SearchUnavailable):
            await search(site)


async def test_a_reply_that_is_cut_is_worth_another_try() -> None:
    async with serving(b'{"results":', headers={"Content-Length": "500"}) as site:
        with pytest.raises(SearchUnavailable):
            await search(site)


@pytest.mark.parametrize("base_url", ["http://[bad", "http://localhost:port", "searxng:8080", "localhost"])
async def test_an_address_that_is_none_is_an_error_that_we_know(base_url: str) -> None:
    with pytest.raises((SearchUnavailable, Misconfigured)):
        await search(Site(b""), base_url=base_url)


async def test_the_web_is_off_unless_a_provider_is_set() -> None:
    assert open_web_search(WebSettings(provider="none", base_url="http://127.0.0.1:1")) is None
    client = open_web_search(WebSettings(provider="searxng", base_url="http://127.0.0.1:1"))
    assert isinstance(client, SearxngSearch)
    await client.aclose()
