"""The web search: looks outside when the index is not enough."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from services.websearch.handler import search_web
from services.websearch.settings import WebSearchSettings
from shared.clients.chat import open_chat
from shared.clients.embeddings import open_embedder
from shared.clients.pages import PagesSettings, open_page_reader
from shared.clients.web import open_web_search
from shared.clients.web.model import Domains
from shared.runtime.common import Common
from shared.runtime.stage import Inbox, Stage
from shared.runtime.worker import run_worker
from shared.settings import EmbedSettings, HomeSettings, LlmSettings, PriceSettings, WebSettings


@asynccontextmanager
async def open_stage(common: Common) -> AsyncIterator[Stage]:
    """The web search with its providers, if there are any, and what reads and compares pages."""
    settings = WebSettings()
    web = open_web_search(settings)
    reader = open_page_reader(PagesSettings()) if web is not None else None
    embedder = open_embedder(EmbedSettings(), HomeSettings().data_dir)
    chat = open_chat(LlmSettings(), common=common, prices=PriceSettings().prices)
    async with AsyncExitStack() as closing:
        for opened in (web, reader, embedder, chat):
            if opened is not None:
                closing.push_async_callback(opened.aclose)
        searching = Inbox.of(
            search_web,
            max_workers=16,
            web=web,
            top_k=settings.top_k,
            reader=reader,
            embedder=embedder,
            chat=chat,
            policy=WebSearchSettings().policy,
            domains=Domains(settings.allow_domains, settings.deny_domains),
            controls=common.controls,
        )
        yield Stage("websearch", [searching])


def main() -> None:
    run_worker(open_stage, "websearch")


if __name__ == "__main__":
    main()
