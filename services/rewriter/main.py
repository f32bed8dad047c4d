"""The rewriter: routes questions and writes search queries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.rewriter.handler import rewrite
from services.rewriter.settings import RewritingPolicy
from shared.clients.chat import open_chat
from shared.runtime.common import Common
from shared.runtime.stage import Inbox, Stage
from shared.runtime.worker import run_worker
from shared.settings import LlmSettings, PriceSettings


@asynccontextmanager
async def open_stage(common: Common) -> AsyncIterator[Stage]:
    """The rewriter with its model, if there is one."""
    chat = open_chat(LlmSettings(), common=common, prices=PriceSettings().prices)
    try:
        yield Stage("rewriter", [Inbox.of(rewrite, max_workers=16, chat=chat, policy=RewritingPolicy())])
    finally:
        if chat is not None:
            await chat.aclose()


def main() -> None:
    run_worker(open_stage, "rewriter")


if __name__ == "__main__":
    main()
