"""The generator: answers with citations, searches once more, or abstains."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.generator.handler import generate
from services.generator.settings import AnsweringPolicy
from services.generator.watch import Groundedness
from shared.clients.chat import open_chat
from shared.clients.embeddings import open_embedder
from shared.runtime.common import Common
from shared.runtime.stage import Inbox, Stage
from shared.runtime.telling import Telling
from shared.runtime.worker import run_worker
from shared.settings import EmbedSettings, HomeSettings, LlmSettings, PriceSettings


@asynccontextmanager
async def open_stage(common: Common) -> AsyncIterator[Stage]:
    """The generator with its model, if there is one, and the embedder that chooses sentences across languages."""
    policy = AnsweringPolicy()
    chat = open_chat(LlmSettings(), common=common, prices=PriceSettings().prices)
    embedder = open_embedder(EmbedSettings(), HomeSettings().data_dir)
    inbox = Inbox.of(
        generate,
        max_workers=8,
        chat=chat,
        embedder=embedder,
        policy=policy,
        controls=common.controls,
        telling=Telling(common.steps),
        groundedness=Groundedness(common, policy),
    )
    try:
        yield Stage("generator", [inbox])
    finally:
        if chat is not None:
            await chat.aclose()
        if embedder is not None:
            await embedder.aclose()


def main() -> None:
    run_worker(open_stage, "generator")


if __name__ == "__main__":
    main()
