"""Reading at arm's length: in a process of its own, with a limit of time and memory for each file.

A file may be made to take for ever, to fill the memory, or to crash a parser written in C. Then only that process dies,
and the next file gets a new one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from shared.contracts import PassageDraft
from shared.documents.model import SourceDocument, UnreadableDocument
from shared.documents.reading import read
from shared.documents.settings import ReadSettings, SplitSettings
from shared.documents.splitting import split
from shared.documents.tokens import counter
from shared.errors import CairnError, Misconfigured

_PAGE_PASSAGES: Final = 1_000
"""Passages handed over at once, so that neither side holds a huge file twice."""

_Page = list[tuple[SourceDocument | None, list[PassageDraft]]]
"""Documents with their passages; None goes on with the document before it."""


class GuardedReader:
    """Reads and splits files one at a time; for one thread. Its process starts with the first file."""

    def __init__(self, read_settings: ReadSettings, split_settings: SplitSettings) -> None:
        self._settings = (read_settings, split_settings)
        self._limits = read_settings
        self._pool: ProcessPool | None = None
        self._in_hand: ProcessFuture[tuple[_Page, bool]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; another file would start a new one.

        Any thread may call it: a file that another one is reading ends with concurrent.futures.CancelledError.
        """
        pool, self._pool = self._pool, None
        if self._in_hand is not None:
            # A stopped pool forgets what it was asked, and whoever waits for it would wait for ever.
            self._in_hand.cancel()  # type: ignore[no-untyped-call]
        if pool is not None:
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join()

    def read(self, path: Path, *, root: Path) -> list[tuple[SourceDocument, list[PassageDraft]]]:
        """The file's documents, without their blocks, each with its passages. Ids are relative to `root`.

        Raises UnreadableDocument, also for a file that takes too long, needs too much memory or crashes the reader.
        """
        found: list[tuple[SourceDocument, list[PassageDraft]]] = []
        page, is_last = self._ask(path, path, root)
        while True:
            for document, drafts in page:
                if document is None:
                    found[-1][1].extend(drafts)
                else:
                    found.append((document, drafts))
            if is_last:
                return found
            page, is_last = self._ask(path, None, root)

    def _ask(self, path: Path, begin: Path | None, root: Path) -> tuple[_Page, bool]:
        if self._pool is None:
            # spawn: a fork of a process with threads may deadlock.
            self._pool = ProcessPool(
                max_workers=1,
                initializer=_start_process,
                initargs=[self._limits.max_memory_bytes],
                context=multiprocessing.get_context("spawn"),
            )
        future: ProcessFuture[tuple[_Page, bool]] = self._pool.schedule(
            _page, args=[begin, root, *self._settings], timeout=self._limits.timeout_s
        )
        self._in_hand = future
        # Asked for, not caught: whatever a parser may raise, it must not end the run.
        failure = future.exception()
        if failure is None:
            return future.result()
        if isinstance(failure, BrokenProcessPool | MemoryError):
            self.close()  # what is left of it would not be worth much to the next file
        raise _told(failure, path, self._limits) from failure


def _told(failure: BaseException, path: Path, limits: ReadSettings) -> CairnError:
    """What the failure of the other process means for the file."""
    if isinstance(failure, CairnError):
        return failure
    if isinstance(failure, TimeoutError):
        return UnreadableDocument(
            path, f"reading it took longer than {limits.timeout_s:g} s", "split it, or raise CAIRN_READ_TIMEOUT_S"
        )
    if isinstance(failure, MemoryError):
        return UnreadableDocument(
            path,
            f"reading it needed more than {limits.max_memory_bytes} bytes of memory",
            "split it, or raise CAIRN_READ_MAX_MEMORY_BYTES",
        )
    if isinstance(failure, BrokenProcessPool):
        return Misconfigured(
            "the process that reads files can't start, and says above why; CAIRN_READ_MAX_MEMORY_BYTES may be too low"
        )
    how = f"exit code {failure.exitcode}" if isinstance(failure, ProcessExpired) else repr(failure)
    return UnreadableDocument(path, f"it crashed the reader ({how[:200]})", "leave it out, or save it anew")


# --- in the other process ---------------------------------------------------------------------------------------


class _Unfinished:
    """Pages of the file in hand that were not asked for yet."""

    pages: Iterator[tuple[_Page, bool]] = iter(())


def _page(
    begin: Path | None, root: Path, read_settings: ReadSettings, split_settings: SplitSettings
) -> tuple[_Page, bool]:
    """The next page of the file in hand, or the first of `begin`; and whether it is the last."""
    if begin is not None:
        _Unfinished.pages = iter(())
        count = counter(split_settings.tokenizer)
        documents = read(begin, root=root, settings=read_settings)
        _Unfinished.pages = _pages([(document, split(document, split_settings, count)) for document in documents])
    return next(_Unfinished.pages)


def _pages(found: list[tuple[SourceDocument, list[PassageDraft]]]) -> Iterator[tuple[_Page, bool]]:
    page: _Page = []
    size = 0
    for document, drafts in found:
        for start in range(0, len(drafts) or 1, _PAGE_PASSAGES):
            part = drafts[start : start + _PAGE_PASSAGES]
            if size + len(part) > _PAGE_PASSAGES:
                yield page, False
                page, size = [], 0
            page.append((replace(document, blocks=()) if start == 0 else None, part))
            size += len(part) or 1
    yield page, True


def _start_process(max_memory_bytes: int) -> None:
    """What the process does first: take its limits, leave Ctrl-C to its parent, and not outlive it."""
    if sys.platform == "linux":
        import resource  # noqa: PLC0415  not on every system

        # Libraries have taken their share already, which grows with the machine's cores.
        taken_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (taken_bytes + max_memory_bytes, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    # A killed parent closes nothing: without this its process would wait for files for ever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
