"""The generator: answers with citations, or abstains."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.generator.handler import generate
from services.generator.settings import AnsweringPolicy
from shared.clients.chat import open_chat
from shared.clients.embeddings import open_embedder
from shared.runtime.stage import Inbox, Stage
from shared.runtime.worker import run_worker
from shared.settings import EmbedSettings, HomeSettings, LlmSettings


@asynccontextmanager
async def open_stage() -> AsyncIterator[Stage]:
    """The generator with its model, if there is one, and the embedder that chooses sentences across languages."""
    chat = open_chat(LlmSettings())
    embedder = open_embedder(EmbedSettings(), HomeSettings().data_dir)
    inbox = Inbox.of(generate, max_workers=8, chat=chat, embedder=embedder, policy=AnsweringPolicy())
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
