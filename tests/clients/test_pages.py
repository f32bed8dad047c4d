"""Reading pages: what becomes of each kind, and that no page costs more than its own time."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from shared.clients.pages import PageReader, PageRefused, PagesSettings, PageUnavailable, ReadPage, Reason
from shared.clients.pages.extracting import Extractor, extract
from shared.clients.pages.fetching import READ_TYPES, Fetched, Fetcher
from shared.clients.pages.reader import WebPageReader, open_page_reader
from shared.documents import SplitSettings
from tests.support.mock_site import EN, FR, INJECTION, RU, MockSite, Page, article
from tests.support.wait import wait_until

# One loop and one extractor for the module: its process takes seconds of work to start.
pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = PagesSettings(
    allow_hosts=("127.0.0.1",), delay_s=0, per_host=50, timeout_s=60, read_timeout_s=30, processes=1, max_passages=50
)
PATIENT_S = 60.0
ROOT = Path(__file__).parents[2]
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no page here needs one with certificates, which take 90 ms to load


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def extractor() -> AsyncIterator[Extractor]:
    running = Extractor(SETTINGS)
    yield running
    await running.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[MockSite]:
    async with MockSite() as running:
        yield running


OpenReader = Callable[..., WebPageReader]


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest_asyncio.fixture(loop_scope="module")
async def open_reader(extractor: Extractor) -> AsyncIterator[OpenReader]:
    """Opens readers with settings and a clock of their own, which share the extractor."""
    fetchers: list[Fetcher] = []

    def opened(*, clock: Clock | None = None, **changed: object) -> WebPageReader:
        settings = SETTINGS.model_copy(update=changed)
        fetchers.append(Fetcher(settings, tls=TLS))
        return WebPageReader(settings, fetcher=fetchers[-1], extractor=extractor, clock=clock or Clock())

    yield opened
    for fetcher in fetchers:
        await fetcher.aclose()


async def test_a_page_says_what_it_is(site: MockSite, open_reader: OpenReader) -> None:
    began = time.time()
    page = await open_reader().read(site.url("/moved#part"), timeout_s=PATIENT_S)
    assert began <= page.fetched_at <= time.time()
    assert replace(page, fetched_at=0.0, passages=()) == ReadPage(
        url=site.url("/en"),
        title="The Lagopus tent",
        site="Tent Weekly",
        author="Ada Peak",
        published="2024-05-06",
        language="en",
        fetched_at=0.0,
        passages=(),
    )
    [passage] = page.passages
    assert EN in passage
    assert not any(furniture in passage for furniture in ("All products", "All rights reserved"))


@pytest.mark.parametrize(
    ("path", "text", "language"),
    [
        ("/en", EN, "en"),
        ("/fr", FR, "fr"),
        ("/ru", RU, "ru"),
        ("/ru-1251", RU, "ru"),
        ("/ru-meta", RU.replace("«", "?").replace("»", "?"), "ru"),
        ("/ru-unsaid", RU, "ru"),
        ("/charset-unknown", EN, "en"),
        ("/charset-wrong", FR, "fr"),
        ("/charset-of-bytes", EN, "en"),
        ("/plain", EN, "en"),
        ("/markdown", EN, "en"),
        ("/pdf", EN, "en"),
        ("/injection", INJECTION, "en"),
        ("/gzip", EN, "en"),
    ],
)
async def test_every_kind_of_page_is_read(
    site: MockSite, open_reader: OpenReader, path: str, text: str, language: str
) -> None:
    page = await open_reader().read(site.url(path), timeout_s=PATIENT_S)
    assert text[:60] in " ".join(page.passages[0].split())
    assert page.language == language
    assert page.title
    assert page.site


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/login", "nothing to read"),
        ("/empty", "nothing to read"),
        ("/menu-only", "nothing to read"),
        ("/charset-binary", "broken"),
        ("/pdf-broken", "broken"),
        ("/picture", "content type"),
    ],
)
async def test_what_says_nothing_is_refused(site: MockSite, open_reader: OpenReader, path: str, reason: Reason) -> None:
    with pytest.raises(PageRefused) as caught:
        await open_reader().read(site.url(path), timeout_s=PATIENT_S)
    assert caught.value.reason == reason


async def test_a_long_page_is_cut_into_passages_and_kept_to_so_many(site: MockSite, open_reader: OpenReader) -> None:
    site.pages["/long"] = Page(article("Long", *(f"Paragraph {number}. {EN}" for number in range(400))))
    page = await open_reader().read(site.url("/long"), timeout_s=PATIENT_S)
    assert len(page.passages) == SETTINGS.max_passages
    assert page.passages[0].startswith("Paragraph 0.")
    assert all(len(passage) < 8 * SplitSettings().max for passage in page.passages)


async def test_structure_is_kept_within_passages(site: MockSite, open_reader: OpenReader) -> None:
    table = "<table><tr><th>Model</th><th>Weight</th></tr><tr><td>L1</td><td>2.4 kg</td></tr></table>"
    body = article("Tents", EN, "Care: <b>dry</b> it.").replace(
        b"</article>", f"<h2>Weights</h2>{table}</article>".encode()
    )
    site.pages["/table"] = Page(body)
    page = await open_reader().read(site.url("/table"), timeout_s=PATIENT_S)
    assert "Care: dry it." in page.passages[0]
    assert "| L1 | 2.4 kg |" in page.passages[-1]


@pytest.mark.parametrize("content_type", READ_TYPES)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n ",
        b"\xff" * 3_000,
        b"<" * 20_000,
        b"<html lang=" + b"x" * 5_000,
        b"<div>" * 3_000 + EN.encode() * 5,
        b"<a href='" * 5_000,
        b"<!--" * 5_000,
        b"<table><tr><td>" * 1_000,
        b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><html><body><p>&b;" + EN.encode(),
        b"%PDF-1.7\n" + b"1 0 obj<</Length 99999>>stream\n" * 50,
        b"---\nacl: [" + EN.encode() * 3,
        b"&#0;&#xD800;&#x110000;" * 500,
    ],
)
async def test_whatever_comes_is_read_or_refused(extractor: Extractor, content_type: str, body: bytes) -> None:
    try:
        found = await extractor.extract(Fetched("http://a.test/", 0.0, content_type, None, body))
    except PageRefused as refused:
        assert refused.reason in ("broken", "nothing to read")
    else:
        assert found.passages
        assert "root:" not in " ".join(found.passages)
        found.passages[0].encode()


async def test_a_slow_page_is_cut_at_its_own_time_and_holds_no_other(site: MockSite, open_reader: OpenReader) -> None:
    reader = open_reader()
    await reader.read(site.url("/en"), timeout_s=PATIENT_S)  # the extractor runs
    began = time.monotonic()

    async def take(path: str, timeout_s: float) -> float:
        with pytest.raises(PageUnavailable, match=r"longer than 0\.3 s"):
            await reader.read(site.url(path), timeout_s=timeout_s)
        return time.monotonic() - began

    async def others() -> float:
        await asyncio.gather(*(reader.read(site.url(path), timeout_s=PATIENT_S) for path in ("/fr", "/ru", "/pdf")))
        return time.monotonic() - began

    slow_s, others_s = await asyncio.gather(take("/slow", 0.3), others())
    assert 0.3 <= slow_s < 5
    assert others_s < 10


async def test_the_settings_limit_holds_whatever_the_caller_gives(site: MockSite, open_reader: OpenReader) -> None:
    reader = open_reader(timeout_s=0.05)
    with pytest.raises(PageUnavailable, match=r"longer than 0\.05 s"):
        await reader.read(site.url("/slow"), timeout_s=PATIENT_S)


async def test_a_page_is_fetched_once_while_it_is_remembered(open_reader: OpenReader) -> None:
    clock = Clock()
    async with MockSite() as site:
        reader = open_reader(clock=clock, cache_ttl_s=100)
        first = await reader.read(site.url("/en"), timeout_s=PATIENT_S)
        assert await reader.read(site.url("/../en#elsewhere"), timeout_s=PATIENT_S) is first
        assert site.asked["/en"] == 1
        clock.now_s += 100
        again = await reader.read(site.url("/en"), timeout_s=PATIENT_S)
        assert again.passages == first.passages
        assert site.asked["/en"] == 2


async def test_a_refusal_is_remembered_for_a_minute_and_a_failure_is_not(open_reader: OpenReader) -> None:
    clock = Clock()
    async with MockSite() as site:
        reader = open_reader(clock=clock)
        for _ in range(2):
            with pytest.raises(PageRefused, match=r"status: .*403"):
                await reader.read(site.url("/forbidden"), timeout_s=PATIENT_S)
            with pytest.raises(PageUnavailable, match="503"):
                await reader.read(site.url("/busy"), timeout_s=PATIENT_S)
        assert (site.asked["/forbidden"], site.asked["/busy"]) == (1, 2)
        clock.now_s += 60
        with pytest.raises(PageRefused):
            await reader.read(site.url("/forbidden"), timeout_s=PATIENT_S)
        assert site.asked["/forbidden"] == 2


async def test_nothing_is_remembered_where_the_settings_say_so(open_reader: OpenReader) -> None:
    async with MockSite() as site:
        reader = open_reader(cache_ttl_s=0)
        for _ in range(2):
            await reader.read(site.url("/en"), timeout_s=PATIENT_S)
        assert site.asked["/en"] == 2


async def test_who_waits_no_longer_costs_no_process(extractor: Extractor) -> None:
    """Given up while read and while waiting: both leave the reader as it was."""
    big = Fetched("http://a.test/", 0.0, "text/html", None, article("Much", *[EN] * 300))
    asked = [asyncio.create_task(extractor.extract(big)) for _ in range(3)]
    await asyncio.wait(asked, timeout=0.01)
    for task in asked:
        task.cancel()
    await asyncio.wait(asked)
    found = await extractor.extract(Fetched("http://a.test/", 0.0, "text/plain", None, EN.encode()))
    assert found.passages == (EN,)


def read_or_misbehave(fetched: Fetched, sizes: SplitSettings, max_passages: int) -> ReadPage:
    """In the other process: some pages crash their reader, or hang it."""
    if fetched.url.endswith("/crash"):
        os._exit(3)
    if fetched.url.endswith("/hang"):
        threading.Event().wait()
    return extract(fetched, sizes, max_passages)


async def test_a_page_that_crashes_or_hangs_its_reader_is_refused_and_the_next_one_read() -> None:
    own = Extractor(SETTINGS.model_copy(update={"read_timeout_s": 5.0}), read=read_or_misbehave)
    page = Fetched("http://a.test/", 0.0, "text/plain", None, EN.encode())
    with pytest.raises(PageRefused, match=r"broken: .*/crash: it crashed the reader \(exit code 3\)"):
        await own.extract(replace(page, url="http://a.test/crash"))
    assert (await own.extract(page)).passages == (EN,)
    with pytest.raises(PageRefused, match=r"too slow to read: .*/hang \(CAIRN_PAGES_READ_TIMEOUT_S\)"):
        await own.extract(replace(page, url="http://a.test/hang"))
    await own.aclose()


async def test_the_reader_that_is_opened_reads(site: MockSite) -> None:
    reader: PageReader = open_page_reader(SETTINGS)
    assert (await reader.read(site.url("/fr"), timeout_s=PATIENT_S)).language == "fr"
    await reader.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_reading_processes_do_not_outlive_a_killed_worker(tmp_path: Path) -> None:
    script = (
        "import asyncio, multiprocessing\n"
        "from shared.clients.pages import PagesSettings, open_page_reader\n"
        "if __name__ == '__main__':\n"
        "    reader = open_page_reader(PagesSettings(processes=1))\n"
        "    print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "    input()\n"
    )
    (tmp_path / "worker.py").write_text(script)
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        str(tmp_path / "worker.py"),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert worker.stdout is not None
    pids = (await worker.stdout.readline()).split()
    worker.kill()
    await worker.wait()
    assert pids
    await wait_until(lambda: not any(Path("/proc", pid.decode()).exists() for pid in pids), within_s=60)
