"""Fetching: bounds on size, time, hops and manners, on real connections."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.clients.pages import PageRefused, PagesSettings, PageUnavailable, Reason
from shared.clients.pages.fetching import Fetcher
from shared.clients.pages.manners import Turns
from shared.clients.pages.memory import Memory
from tests.support.mock_site import EN, Internet, MockSite, Page, article
from tests.support.wait import wait_until

SETTINGS = PagesSettings(allow_hosts=("127.0.0.1",), robots=False, delay_s=0, per_host=50)
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and takes no time to load


@pytest.fixture
async def site() -> AsyncIterator[MockSite]:
    async with MockSite() as running:
        yield running


@asynccontextmanager
async def open_fetcher(settings: PagesSettings = SETTINGS) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(settings, tls=TLS)
    yield fetcher
    await fetcher.aclose()


async def refused(site: MockSite, path: str, settings: PagesSettings = SETTINGS) -> PageRefused:
    async with open_fetcher(settings) as fetcher:
        with pytest.raises(PageRefused) as caught:
            await fetcher.fetch(site.url(path))
    return caught.value


@pytest.mark.parametrize("path", ["/en", "/gzip", "/moved", "/moved-5"])
async def test_a_page_comes_whole_with_its_last_address(site: MockSite, path: str) -> None:
    site.pages["/moved-9"] = Page.leading_to("en#part")
    async with open_fetcher() as fetcher:
        found = await fetcher.fetch(site.url(path))
    assert EN.encode() in found.body
    assert found.url == site.url(path if path == "/gzip" else "/en")
    assert (found.content_type, found.charset) == ("text/html", "utf-8")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/moved-far", "redirects"),
        ("/loop", "redirects"),
        ("/forbidden", "status"),
        ("/nowhere", "status"),
        ("/picture", "content type"),
        ("/untyped", "content type"),
        ("/huge", "too big"),
        ("/endless", "too big"),
        ("/gzip-bomb", "too big"),
        ("/gzip-broken", "broken"),
        ("/gzip-cut", "broken"),
        ("/brotli", "broken"),
    ],
)
async def test_what_cannot_be_read_says_why(site: MockSite, path: str, reason: Reason) -> None:
    assert (await refused(site, path)).reason == reason


@pytest.mark.parametrize("path", ["/busy", "/too-often", "/cut"])
async def test_what_may_pass_is_unavailable(site: MockSite, path: str) -> None:
    async with open_fetcher() as fetcher:
        with pytest.raises(PageUnavailable, match=path):
            await fetcher.fetch(site.url(path))


async def test_who_is_not_there_is_unavailable(site: MockSite) -> None:
    async with MockSite() as gone:
        address = gone.url("/en")
    async with open_fetcher() as fetcher:
        with pytest.raises(PageUnavailable, match="ConnectError"):
            await fetcher.fetch(address)


async def test_a_bomb_is_met_while_it_unpacks(site: MockSite) -> None:
    tracemalloc.start()
    await refused(site, "/gzip-bomb", SETTINGS.model_copy(update={"max_bytes": 10_000}))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 3_000_000  # of the 60 MB in it


async def test_a_stream_that_unpacks_to_nothing_ends_as_well(site: MockSite) -> None:
    """Empty deflate blocks for ever: only what was sent grows."""
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    empty = b"\x00\x00\x00\xff\xff" * 10_000
    site.pages["/nothing"] = Page(head + empty, headers={"Content-Encoding": "gzip"})
    assert (await refused(site, "/nothing", SETTINGS.model_copy(update={"max_bytes": 40_000}))).reason == "too big"


async def test_one_redirect_more_is_too_many(site: MockSite) -> None:
    site.pages["/moved-9"] = Page(article("End", EN))
    async with open_fetcher() as fetcher:
        assert (await fetcher.fetch(site.url("/moved-4"))).url == site.url("/moved-9")
        with pytest.raises(PageRefused, match="more than 5"):
            await fetcher.fetch(site.url("/moved-3"))
    async with open_fetcher(SETTINGS.model_copy(update={"max_redirects": 0})) as fetcher:
        with pytest.raises(PageRefused, match="more than 0"):
            await fetcher.fetch(site.url("/moved"))


async def test_it_says_who_it_is_and_sends_nothing_else(site: MockSite) -> None:
    site.pages["/en"] = Page(article("A", EN), headers={"Set-Cookie": "id=1"})
    async with open_fetcher(SETTINGS.model_copy(update={"contact": "web@example.org"})) as fetcher:
        await fetcher.fetch(site.url("/en"))
        await fetcher.fetch(site.url("/en"))
    assert site.headers[1]["user-agent"] == "Cairn/1.0 (+web@example.org)"
    assert {name for name in site.headers[1] if name} == {"host", "user-agent", "accept", "accept-encoding"}
    assert site.connections == 1


# --- robots.txt --------------------------------------------------------------------------------------------------

ASKING = SETTINGS.model_copy(update={"robots": True})


async def test_robots_are_asked_once_and_obeyed() -> None:
    rules = "User-agent: *\nDisallow: /e\n\nUser-agent: cairn\nDisallow: /fr$\nDisallow: /*-1251"
    async with MockSite(robots=rules) as site, open_fetcher(ASKING) as fetcher:
        assert (await fetcher.fetch(site.url("/en"))).body
        for path in ("/fr", "/ru-1251"):
            with pytest.raises(PageRefused, match=f"robots: .*{path}"):
                await fetcher.fetch(site.url(path))
        assert site.asked == {"/robots.txt": 1, "/en": 1}


async def test_robots_of_each_hop_count() -> None:
    async with MockSite(robots="User-agent: *\nDisallow: /en") as site:
        assert (await refused(site, "/moved", ASKING)).reason == "robots"
        assert (await refused(site, "/en", ASKING)).reason == "robots"
        assert site.asked["/en"] == 0


async def test_a_site_without_robots_is_open(site: MockSite) -> None:
    async with open_fetcher(ASKING) as fetcher:
        assert (await fetcher.fetch(site.url("/en"))).body
        assert (await fetcher.fetch(site.url("/fr"))).body
    assert site.asked["/robots.txt"] == 1


@pytest.mark.parametrize(
    ("robots", "reason"),
    [
        (Page(b"#" * 600_000, "text/plain"), "robots"),
        (Page.leading_to("/robots.txt"), "robots"),
        (Page(b"\xff\xfe\x00User-agent: *\nDisallow: /", "text/plain"), None),
        (Page(b"<html>Welcome</html>"), None),
    ],
)
async def test_odd_robots(site: MockSite, robots: Page, reason: Reason | None) -> None:
    site.pages["/robots.txt"] = robots
    async with open_fetcher(ASKING) as fetcher:
        if reason is None:
            assert (await fetcher.fetch(site.url("/en"))).body
        else:
            with pytest.raises(PageRefused) as caught:
                await fetcher.fetch(site.url("/en"))
            assert caught.value.reason == reason


async def test_a_site_whose_robots_are_down_is_asked_again_later(site: MockSite) -> None:
    site.pages["/robots.txt"] = Page(b"", status=503)
    async with open_fetcher(ASKING) as fetcher:
        with pytest.raises(PageUnavailable, match=r"robots\.txt"):
            await fetcher.fetch(site.url("/en"))
        site.pages["/robots.txt"] = Page(b"", "text/plain")
        assert (await fetcher.fetch(site.url("/en"))).body


# --- not too much at once ----------------------------------------------------------------------------------------


async def test_a_host_gets_so_many_requests_at_once_and_no_more() -> None:
    async with MockSite(latency_s=0.02) as site, open_fetcher(SETTINGS.model_copy(update={"per_host": 2})) as fetcher:
        await asyncio.gather(*(fetcher.fetch(site.url("/en")) for _ in range(6)))
        assert site.most_in_flight == 2


async def test_hosts_do_not_wait_for_each_other() -> None:
    settings = PagesSettings(robots=False, delay_s=0, per_host=1)
    async with MockSite(latency_s=0.05) as site:
        net = Internet(site, {f"{name}.test": [["8.8.8.8"]] for name in "abc"})
        fetcher = Fetcher(settings, resolve=net.resolve, network=net, tls=TLS)
        await asyncio.gather(*(fetcher.fetch(f"http://{name}.test/en") for name in "abc"))
        await fetcher.aclose()
        assert site.most_in_flight == 3


async def test_requests_to_a_host_begin_apart(site: MockSite) -> None:
    async with open_fetcher(SETTINGS.model_copy(update={"delay_s": 0.05})) as fetcher:
        await asyncio.gather(*(fetcher.fetch(site.url("/en")) for _ in range(4)))
    assert max(site.begun_s) - min(site.begun_s) > 0.1


async def test_who_gives_up_leaves_its_place() -> None:
    turns = Turns(1, 0)
    async with turns.turn("a.test"):
        waiting = asyncio.create_task(_take(turns))
        await asyncio.wait([waiting], timeout=0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
    await asyncio.wait_for(_take(turns), timeout=5)


async def _take(turns: Turns) -> None:
    async with turns.turn("a.test"):
        pass


async def test_a_fetch_that_is_given_up_leaves_no_connection(site: MockSite) -> None:
    async with open_fetcher(SETTINGS.model_copy(update={"per_host": 1})) as fetcher:
        slow = asyncio.create_task(fetcher.fetch(site.url("/slow")))
        await wait_until(lambda: site.asked["/slow"])
        slow.cancel()
        await asyncio.wait([slow])
        assert (await fetcher.fetch(site.url("/en"))).body


# --- what is remembered ------------------------------------------------------------------------------------------


def test_memory_forgets_by_time_and_by_size() -> None:
    now = [0.0]
    memory: Memory[str] = Memory(2, clock=lambda: now[0])
    memory.put("a", "A", ttl_s=10)
    memory.put("b", "B", ttl_s=5)
    assert (memory.get("a"), memory.get("b")) == ("A", "B")
    now[0] = 5.0
    assert (memory.get("a"), memory.get("b")) == ("A", None)
    memory.put("b", "B", ttl_s=10)
    memory.get("a")
    memory.put("c", "C", ttl_s=10)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == ("A", None, "C")


def test_empty_values_are_remembered_too() -> None:
    memory: Memory[str] = Memory(2)
    memory.put("a", "", ttl_s=10)
    assert memory.get("a") == ""


def test_settings_are_read_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_PAGES_PORTS", "80, 8080")
    monkeypatch.setenv("CAIRN_PAGES_ALLOW_HOSTS", "Wiki.Internal., [::1]")
    settings = PagesSettings()
    assert (settings.ports, settings.allow_hosts) == ((80, 8080), ("wiki.internal", "::1"))
