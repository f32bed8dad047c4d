"""Search and pages together, over real HTTP on loopback: SearXNG's API, five pages, the real reader."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.websearch.decision import WebPolicy
from services.websearch.handler import search_web
from shared.clients.pages import PageReader, PagesSettings, open_page_reader
from shared.clients.web import WebSearch, open_web_search
from shared.contracts import Grade, SearchWeb
from shared.settings import WebSettings
from tests.support.bus import header, question
from tests.support.mock_web_search import Asked, MockWebSearch, Reply, found, searxng

PAGES = 5
TEXT = "A tent that was bought in the shop may be returned within thirty days, if it was never pitched outdoors."


class LittleWeb:
    """A search engine that takes 200 ms, and pages that take 300 ms; a path of `/slow` never ends."""

    def __init__(self) -> None:
        self.paths = [f"/{n}" for n in range(PAGES)]
        self.waits = True
        self.site = MockWebSearch(self._answer)

    def _answer(self, asked: Asked) -> Reply:
        if asked.path == "/search":
            hits = [found(f"{self.site.base_url}{path}") for path in self.paths]
            return Reply(searxng(*hits).body, after_s=0.2 * self.waits)
        if asked.path.startswith("/slow"):
            return Reply(silent=True)
        page = (
            f"<html lang=en><title>Tents</title><body><main><p>{TEXT}</p><p>Page {asked.path}.</p></main></body></html>"
        )
        return Reply(page.encode(), headers={"Content-Type": "text/html"}, after_s=0.3 * self.waits)


@asynccontextmanager
async def opened(web: LittleWeb) -> AsyncIterator[tuple[WebSearch, PageReader]]:
    # The pages are on one host here, and polite intervals are tested elsewhere.
    settings = PagesSettings(
        allow_hosts=("127.0.0.1",),
        per_host=PAGES,
        delay_s=0.0,
        robots=False,
        timeout_s=90.0,
        read_timeout_s=90.0,
        processes=1,
    )
    searching = open_web_search(WebSettings(provider=("searxng",), base_url=web.site.base_url))
    assert searching is not None
    reader = open_page_reader(settings)
    try:
        yield searching, reader
    finally:
        await searching.aclose()
        await reader.aclose()


async def searched(searching: WebSearch, reader: PageReader, policy: WebPolicy) -> Grade:
    asked = "May I return a tent?"
    msg = SearchWeb(header=header(), asked=question(asked), route="factual", queries=(asked,), verdict="incorrect")
    return await search_web(msg, web=searching, top_k=PAGES, reader=reader, policy=policy)


async def test_search_and_pages_wait_together_and_one_without_end_leaves_the_others_theirs() -> None:
    """200 ms and five times 300 ms: 1.7 s one by one, half a second side by side, beside what the machine computes."""
    web = LittleWeb()
    took: dict[bool, list[float]] = {True: [], False: []}
    async with web.site, opened(web) as (searching, reader):
        await reader.read(f"{web.site.base_url}/warm", timeout_s=90)  # the reading process takes a while to start
        for attempt in range(8):
            web.paths = [f"/{attempt}-{n}" for n in range(PAGES)]
            web.waits = attempt % 2 == 0
            began = time.time()
            command = await searched(searching, reader, WebPolicy())
            took[web.waits].append(time.time() - began)
            assert sorted(passage.uri.rpartition("/")[2] for passage in command.passages) == [p[1:] for p in web.paths]
            assert all(TEXT in passage.text for passage in command.passages)
            assert all(began <= (passage.fetched_at or 0) <= time.time() for passage in command.passages)
            assert command.header.degraded == ()

        web.paths[2] = "/slow"  # the others are known by now
        command = await searched(searching, reader, WebPolicy(pages_timeout_s=0.5))
        excerpts = [passage.uri.rpartition("/")[2] for passage in command.passages if passage.fetched_at is None]
        assert (excerpts, len(command.passages)) == (["slow"], PAGES)

    assert min(took[True]) - min(took[False]) < 0.75
