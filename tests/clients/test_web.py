"""SearXNG as the web search, over real HTTP on loopback; what every provider shares is tested with it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from shared.cli.doctor import look_at_web
from shared.clients.web import open_web_search
from shared.clients.web.asking import MAX_REPLY_BYTES
from shared.clients.web.model import MAX_SNIPPET_CHARS, Domains, Hit, page_key, pages_of
from shared.contracts import WebPage
from shared.errors import InvalidModelReply, Misconfigured, SearchUnavailable
from shared.settings import WebSettings
from tests.support.mock_web_search import MockWebSearch, Reply, found, searxng


async def search(
    site: MockWebSearch | str,
    query: str = "tents",
    *,
    language: str = "en",
    limit: int = 5,
    patience_s: float = 10.0,
    **fields: Any,
) -> list[WebPage]:
    base_url = site if isinstance(site, str) else site.base_url
    web = open_web_search(WebSettings(provider="searxng", **{"base_url": base_url, **fields}))
    assert web is not None
    try:
        return list(await web.search(query, language=language, limit=limit, timeout_s=patience_s))
    finally:
        await web.aclose()


# --- good replies --------------------------------------------------------------------------------------------------


async def test_hits_become_pages_in_the_engines_order() -> None:
    async with MockWebSearch(searxng(found(), found("http://example.net/", " Gear ", " Всё о палатках. "))) as site:
        pages = await search(site)
    assert pages == [
        WebPage(url="https://example.org/tents", title="Tents", snippet="A tent is a shelter."),
        WebPage(url="http://example.net/", title="Gear", snippet="Всё о палатках."),
    ]


async def test_the_request_is_searxngs() -> None:
    async with MockWebSearch(searxng()) as site:
        await search(site, "où est-ce & pourquoi?", language="fr", base_url=f"{site.base_url}/searx/")
    (asked,) = site.asked
    assert (asked.method, asked.path) == ("GET", "/searx/search")
    assert asked.parameters == {"q": "où est-ce & pourquoi?", "format": "json", "language": "fr", "safesearch": "1"}


async def test_region_and_safe_search_are_settings() -> None:
    async with MockWebSearch(searxng()) as site:
        await search(site, language="fr", region="be", safe_search="strict")
    assert (site.asked[0].parameters["language"], site.asked[0].parameters["safesearch"]) == ("fr-BE", "2")


async def test_name_and_password_of_a_proxy_stand_in_the_address() -> None:
    async with MockWebSearch(searxng(found())) as site:
        assert await search(site, base_url=site.base_url.replace("://", "://ada:secret@"))
        site.reply = Reply(status=401)
        with pytest.raises(Misconfigured, match="CAIRN_WEB_BASE_URL") as refused:
            await search(site, base_url=site.base_url.replace("://", "://ada:secret@"))
    assert site.asked[0].headers["authorization"].startswith("Basic ")
    assert "secret" not in str(refused.value)


async def test_no_more_pages_than_asked_for() -> None:
    async with MockWebSearch(searxng(*(found(f"https://example.org/{n}") for n in range(30)))) as site:
        pages = await search(site, limit=3)
    assert [page.url for page in pages] == [f"https://example.org/{n}" for n in range(3)]


async def test_nothing_found_is_an_answer() -> None:
    async with MockWebSearch(searxng()) as site:
        assert await search(site) == []


async def test_silent_engines_do_not_matter_where_others_answered() -> None:
    async with MockWebSearch(searxng(found(), unresponsive=[["bing", "timeout"]])) as site:
        assert len(await search(site)) == 1


# --- what counts as a page -----------------------------------------------------------------------------------------

SAME_PAGE = [
    "http://example.org/tents",
    "https://www.example.org/tents",
    "https://EXAMPLE.org:443/tents",
    "https://example.org/tents/",
    "https://example.org/tents#sizes",
    "https://example.org/tents?utm_source=mail&fbclid=1",
]


@pytest.mark.parametrize("url", SAME_PAGE)
async def test_a_page_counts_once_with_its_best_rank_and_its_own_address(url: str) -> None:
    async with MockWebSearch(searxng(found(url, content="first"), found("https://b.example/"), found())) as site:
        pages = await search(site)
    assert [(page.url, page.snippet) for page in pages] == [
        (url, "first"),
        ("https://b.example/", "A tent is a shelter."),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://example.org/tents?page=1", "https://example.org/tents?page=2"),
        ("https://example.org/Tents", "https://example.org/tents"),
        ("https://a.example.org/tents", "https://b.example.org/tents"),
        ("https://example.org:8443/tents", "https://example.org/tents"),
    ],
)
def test_different_pages_stay_different(one: str, other: str) -> None:
    assert page_key(one) != page_key(other)


def test_parameters_count_in_any_order() -> None:
    assert page_key("https://example.org/?a=1&b=2") == page_key("https://example.org/?b=2&a=1")


NOT_A_PAGE = [
    pytest.param(found("javascript:alert(1)"), id="javascript"),
    pytest.param(found("JaVaScRiPt:alert(1)//https://example.org"), id="javascript, hidden"),
    pytest.param(found("data:text/html,<script>"), id="data"),
    pytest.param(found("file:///etc/passwd"), id="file"),
    pytest.param(found("ftp://example.org/"), id="ftp"),
    pytest.param(found("//example.org/"), id="no scheme"),
    pytest.param(found(""), id="no address"),
    pytest.param(found("http://[not-an-address/"), id="broken address"),
    pytest.param(found("http://example.org:port/"), id="broken port"),
    pytest.param(found("https://example.org/" + "x" * 5_000), id="an address of pages"),
    pytest.param({"url": None, "title": None, "content": None}, id="nulls"),
    pytest.param({"url": ["https://example.org/"], "title": 7, "content": {}}, id="other types"),
    pytest.param({}, id="empty"),
    pytest.param("https://example.org/", id="a string"),
    pytest.param(None, id="null"),
]


@pytest.mark.parametrize("bad", NOT_A_PAGE)
async def test_what_is_no_page_is_left_out(bad: Any) -> None:
    async with MockWebSearch(searxng(bad, found("https://good.example/"))) as site:
        pages = await search(site)
    assert [page.url for page in pages] == ["https://good.example/"]


async def test_a_page_without_a_title_is_called_by_its_address_and_one_without_excerpt_can_still_be_read() -> None:
    async with MockWebSearch(searxng(found(title="", content=" \n"))) as site:
        (page,) = await search(site)
    assert (page.title, page.snippet) == (page.url, "")


async def test_long_texts_are_cut() -> None:
    async with MockWebSearch(searxng(found(title="t\n" * 5_000, content="x" * 50_000))) as site:
        (page,) = await search(site)
    assert (len(page.title), len(page.snippet)) == (300, MAX_SNIPPET_CHARS)
    assert "\n" not in page.title


async def test_half_a_character_does_not_break_the_job() -> None:
    """JSON can escape half of a surrogate pair; such text can't be written as UTF-8, so not into a stream either."""
    half = b'{"results":[{"url":"https://a.example/\\ud800","title":"\\udc00","content":"a\\ud83d"}]}'
    async with MockWebSearch(Reply(half)) as site:
        (page,) = await search(site)
    page.model_dump_json().encode()


@pytest.mark.parametrize(
    ("allowed", "denied", "kept"),
    [
        ((), (), ["example.org", "shop.example.org", "notexample.org"]),
        (("example.org",), (), ["example.org", "shop.example.org"]),
        ((), ("example.org",), ["notexample.org"]),
        (("example.org",), ("shop.example.org",), ["example.org"]),
    ],
)
def test_domains_are_admitted_or_not_with_what_is_below_them(
    allowed: tuple[str, ...], denied: tuple[str, ...], kept: list[str]
) -> None:
    hosts = ["example.org", "shop.EXAMPLE.org.", "notexample.org"]
    pages = pages_of([Hit(f"https://{host}/", "", "") for host in hosts], Domains(allowed, denied), 10)
    assert [page.url.removeprefix("https://").rstrip("./").lower() for page in pages] == kept


async def test_domain_lists_are_settings() -> None:
    hits = [found(f"https://{host}/") for host in ("a.example", "b.example", "c.example")]
    async with MockWebSearch(searxng(*hits)) as site:
        pages = await search(site, allow_domains="A.example, b.example", deny_domains="b.example")
    assert [page.url for page in pages] == ["https://a.example/"]


# --- bad replies ---------------------------------------------------------------------------------------------------


async def test_403_names_the_line_of_settings_yml() -> None:
    async with MockWebSearch(Reply(b"<h1>403 Forbidden</h1>", status=403)) as site:
        with pytest.raises(Misconfigured, match=r"json.*search: formats:.*settings\.yml"):
            await search(site)


async def test_429_tells_how_long_to_wait() -> None:
    async with MockWebSearch(Reply(b"Too Many Requests", status=429, headers={"Retry-After": "7"})) as site:
        with pytest.raises(SearchUnavailable, match="429") as away:
            await search(site)
    assert away.value.retry_after_s == 7.0


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_broken_server_is_worth_another_try(status: int) -> None:
    async with MockWebSearch(Reply(b"oops", status=status)) as site:
        with pytest.raises(SearchUnavailable, match=str(status)):
            await search(site)


@pytest.mark.parametrize("status", [302, 401, 402, 404, 405])
async def test_a_wrong_address_names_its_setting_and_no_other(status: int) -> None:
    async with MockWebSearch(Reply(status=status, headers={"Location": "http://elsewhere.example/"})) as site:
        with pytest.raises(Misconfigured, match="CAIRN_WEB_BASE_URL") as wrong:
            await search(site)
    assert not any(name in str(wrong.value) for name in ("MODEL", "/v1", "API_KEY"))


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
    pytest.param(b'{"results": {"url": "https://example.org/"}}', id="an object of results"),
]


@pytest.mark.parametrize("body", UNREADABLE)
async def test_what_is_not_searxngs_json_is_said_so(body: bytes) -> None:
    async with MockWebSearch(Reply(body)) as site:
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
    async with MockWebSearch(Reply({"results": [], "unresponsive_engines": engines})) as site:
        with pytest.raises(SearchUnavailable, match=named):
            await search(site)


async def test_a_reply_without_end_is_left_at_its_bound() -> None:
    async with MockWebSearch(Reply(b" " * 65_536, endless=True)) as site:
        with pytest.raises(InvalidModelReply, match=str(MAX_REPLY_BYTES)):
            await search(site)
    assert site.sent_bytes < 8 * MAX_REPLY_BYTES  # what the buffers between hold, and no more


async def test_a_reply_is_never_unpacked() -> None:
    """It is asked for as it is; what comes compressed all the same is no JSON."""
    async with MockWebSearch(Reply(b"\x1f\x8b" + bytes(50), headers={"Content-Encoding": "gzip"})) as site:
        with pytest.raises(InvalidModelReply, match="not its JSON"):
            await search(site)
    assert site.asked[0].headers["accept-encoding"] == "identity"


async def test_nobody_listens() -> None:
    async with MockWebSearch(Reply()) as site:
        base_url = site.base_url
    with pytest.raises(SearchUnavailable, match="searxng can't be reached"):
        await search(base_url)


@pytest.mark.parametrize("bounds", [{"timeout_s": 0.05}, {"patience_s": 0.05}])
async def test_a_silent_server_is_left_in_time(bounds: dict[str, Any]) -> None:
    async with MockWebSearch(Reply(silent=True)) as site:
        with pytest.raises(SearchUnavailable, match="searxng did not answer within"):
            await search(site, **bounds)


async def test_a_server_that_drips_is_left_in_time() -> None:
    """Each byte comes in time, the whole never does."""
    async with MockWebSearch(Reply(b" ", endless=True, pause_s=0.01)) as site:
        with pytest.raises(SearchUnavailable, match="did not answer within"):
            await search(site, timeout_s=0.3)


@pytest.mark.parametrize("reply", [Reply(cut=True), Reply(b'{"results":', headers={"Content-Length": "500"})])
async def test_what_is_cut_is_worth_another_try(reply: Reply) -> None:
    async with MockWebSearch(reply) as site:
        with pytest.raises(SearchUnavailable):
            await search(site)


@pytest.mark.parametrize("base_url", ["http://[bad", "http://localhost:port", "searxng:8080", "localhost"])
async def test_an_address_that_is_none_is_an_error_that_we_know(base_url: str) -> None:
    with pytest.raises((SearchUnavailable, Misconfigured)):
        await search(base_url)


# --- the doctor ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "state", "says"),
    [
        (searxng(), "ok", "/search"),
        (Reply(status=403), "wrong", "`json` to `search: formats:`"),
        (Reply(status=401), "wrong", "CAIRN_WEB_BASE_URL"),
        (Reply(status=500), "wrong", "500"),
    ],
)
async def test_the_doctor_asks_searxng_and_says_what_to_do(reply: Reply, state: str, says: str) -> None:
    async with MockWebSearch(reply) as site:
        finding = await look_at_web(WebSettings(provider=("searxng",), base_url=site.base_url))
    assert (finding.state, says in finding.said) == (state, True)


async def test_the_doctor_spends_no_searches_on_others() -> None:
    finding = await look_at_web(WebSettings(provider=("tavily", "ddgs"), api_key=SecretStr("key")))
    assert (finding.state, finding.said.partition(";")[0]) == ("ok", "tavily, ddgs")
    assert (await look_at_web(WebSettings())).state == "note"
