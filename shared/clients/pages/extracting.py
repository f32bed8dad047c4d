"""What was fetched becomes text, in a process of its own: trafilatura finds a page's article, and the readers of the
ingestion make of it, of PDF and of plain text what they make of files.

The page is a stranger's. It may be made to take for ever, to fill the memory or to crash a parser: then that process
dies, and the next page gets another.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from shared.clients.pages.fetching import Fetched
from shared.clients.pages.guard import host_of
from shared.clients.pages.model import PageRefused, PageUnavailable, ReadPage
from shared.clients.pages.settings import PagesSettings
from shared.documents.guarded import _start_process
from shared.documents.html import declared_encoding, read_html
from shared.documents.markdown import read_markdown
from shared.documents.metadata import language_code
from shared.documents.model import Content, SourceDocument, UnreadableDocument
from shared.documents.pdf import read_pdf
from shared.documents.plain import read_plain
from shared.documents.settings import SplitSettings
from shared.documents.splitting import language_of, split
from shared.documents.text import clean, decode, one_line
from shared.documents.tokens import counter
from shared.errors import CairnError
from shared.language import detect_language

_MEMORY_BYTES: Final = 1_000_000_000
"""Address space that reading may take, beyond that of the libraries."""
_LEAST_CHARS: Final = 80
"""A page with less text than this says nothing."""
_LEAST_BESIDE_PASSWORD_CHARS: Final = 600
"""With a field for a password on it: less is what a login wall says around it."""
_PLAIN: Final = {"text/plain": read_plain, "text/markdown": read_markdown}
_PASSWORD: Final = re.compile(r"<input\b[^>]{0,500}?\btype\s*=\s*[\"']?password", re.IGNORECASE)
_LANGUAGE: Final = re.compile(r"<html\b[^>]{0,1000}?\blang\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)


Read = Callable[[Fetched, SplitSettings, int], ReadPage]


class Extractor:
    """Reads `settings.processes` pages at once. To open it takes seconds, so that the first page needn't."""

    def __init__(self, settings: PagesSettings, *, read: Read | None = None) -> None:
        """`read` is for tests of what a page may do to its reader."""
        self._settings = settings
        self._split = SplitSettings()
        self._read = read or extract
        self._pool, self._places = self._started()

    async def extract(self, fetched: Fetched) -> ReadPage:
        """Raises PageRefused, also for a page that takes too long, needs too much memory or crashes its reader."""
        if not self._pool.active:
            self._pool, self._places = self._started()
        pool, places = self._pool, self._places
        # What waits here can be given up; what pebble has can't: it would end the process that comes to it.
        await places.acquire()
        try:
            asked: ProcessFuture[ReadPage] = pool.schedule(
                self._read,
                args=[fetched, self._split, self._settings.max_passages],
                timeout=self._settings.read_timeout_s,
            )
        except RuntimeError as error:  # the pool was lost while this page waited
            raise PageUnavailable(f"{fetched.url}: {error}") from error
        answer = asyncio.wrap_future(asked)
        answer.add_done_callback(partial(_leave, places))
        # Waited for, then asked, not caught: whatever a parser may raise, it must not end the job.
        await asyncio.wait([answer])
        failure = answer.exception()
        if failure is None:
            return answer.result()
        raise _told(failure, fetched.url) from failure

    async def aclose(self) -> None:
        self._pool.stop()  # type: ignore[no-untyped-call]
        await asyncio.to_thread(self._pool.join)

    def _started(self) -> tuple[ProcessPool, asyncio.Semaphore]:
        # Forked from a process that has loaded everything and does nothing else: to load it anew takes seconds of work.
        has_fork = "forkserver" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if has_fork else "spawn")
        context.set_forkserver_preload(["__main__", "shared.clients.pages.preloaded"])
        processes = self._settings.processes
        pool = ProcessPool(max_workers=processes, initializer=_start, context=context)
        pool.schedule(int)  # asked for anything, it starts
        return pool, asyncio.Semaphore(processes)


def _leave(places: asyncio.Semaphore, answer: asyncio.Future[ReadPage]) -> None:
    places.release()
    if not answer.cancelled():
        answer.exception()  # looked at, even if nobody waits any more


def _told(failure: BaseException, url: str) -> CairnError:
    """What the failure of the other process means for the page."""
    if isinstance(failure, PageRefused):
        return failure
    if isinstance(failure, TimeoutError):
        return PageRefused("too slow to read", f"{url} (CAIRN_PAGES_READ_TIMEOUT_S)")
    if isinstance(failure, BrokenProcessPool | CairnError):
        return PageUnavailable(f"no page can be read here: {failure}")
    how = f"exit code {failure.exitcode}" if isinstance(failure, ProcessExpired) else repr(failure)
    return PageRefused("broken", f"{url}: it crashed the reader ({how[:200]})")


# --- in the other process ---------------------------------------------------------------------------------------


def _start() -> None:
    """Takes its limits, and keeps to itself what parsers think of pages."""
    _start_process(_MEMORY_BYTES)
    logging.disable(logging.CRITICAL)


def extract(fetched: Fetched, split_settings: SplitSettings, max_passages: int) -> ReadPage:
    """The page's text and what it says of itself. Raises PageRefused."""
    path = Path(fetched.url)
    site = author = published = ""
    try:
        if fetched.content_type == "application/pdf":
            content = read_pdf(fetched.body, path)
        else:
            declared = fetched.charset or declared_encoding(fetched.body)
            text = clean(decode(fetched.body, path, declared=declared)) if fetched.body.strip() else ""
            if fetched.content_type in _PLAIN:
                content = _PLAIN[fetched.content_type](text)
            else:
                content, site, author, published = _article(text, fetched.url)
    except UnreadableDocument as error:
        raise PageRefused("broken", str(error)) from error
    said = sum(len(block.text) for block in content.blocks)
    if said < _LEAST_CHARS:
        raise PageRefused("nothing to read", f"{fetched.url} has {said} characters of text")
    blocks = list(content.blocks)
    language = language_of(blocks, content.language or detect_language("\n".join(block.text for block in blocks[:20])))
    title = content.title or fetched.url
    document = SourceDocument(fetched.url, title, fetched.url, language, {}, "", content.blocks)
    drafts = split(document, split_settings, counter(split_settings.tokenizer))
    passages = tuple(draft.text for draft in drafts[:max_passages])
    return ReadPage(
        url=fetched.url,
        title=title,
        site=site or host_of(httpx.URL(fetched.url)),
        author=author,
        published=published,
        language=language,
        fetched_at=fetched.at,
        passages=passages,
    )


def _article(text: str, url: str) -> tuple[Content, str, str, str]:
    """The page's article, its site, author and date. Comments, menus and everything around it stay out."""
    from trafilatura import extract_with_metadata  # noqa: PLC0415  takes a second to load: not in the worker's process

    found = extract_with_metadata(
        text,
        url=url,
        output_format="html",
        include_comments=False,
        include_formatting=True,
        # A date that the page declares, not one that stands somewhere on it.
        date_extraction_params={"original_date": True, "extensive_search": False},
    )
    if found is None or not found.text:
        return Content(blocks=()), "", "", ""
    if _PASSWORD.search(text) and len(found.raw_text or "") < _LEAST_BESIDE_PASSWORD_CHARS:
        raise PageRefused("nothing to read", f"{url} asks for a password first")
    declared = _LANGUAGE.search(text)
    content = read_html(clean(found.text))
    content = replace(
        content,
        title=one_line(clean(found.title or "")) or content.title,
        language=language_code(declared.group(1)) if declared else "",
    )
    site, author, published = (one_line(clean(each or "")) for each in (found.sitename, found.author, found.date))
    return content, site, author, published
