"""The web search: looks outside when the index is not enough."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.websearch.handler import search_web
from shared.clients.web import open_web_search
from shared.runtime.stage import Inbox, Stage
from shared.runtime.worker import run_worker
from shared.settings import WebSettings


@asynccontextmanager
async def open_stage() -> AsyncIterator[Stage]:
    """The web search with its provider, if there is one."""
    settings = WebSettings()
    web = open_web_search(settings)
    try:
        yield Stage("websearch", [Inbox.of(search_web, max_workers=16, web=web, top_k=settings.top_k)])
    finally:
        if web is not None:
            await web.aclose()


def main() -> None:
    run_worker(open_stage, "websearch")


if __name__ == "__main__":
    main()
