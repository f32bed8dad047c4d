"""The grader: judges every passage in parallel and decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.grader import prompts
from services.grader.handler import grade
from services.grader.settings import GraderSettings
from shared.clients.embeddings import open_embedder
from shared.clients.judge import open_judge
from shared.runtime.stage import Inbox, Stage
from shared.runtime.worker import run_worker
from shared.settings import EmbedSettings, HomeSettings, JudgeSettings, LlmSettings


@asynccontextmanager
async def open_stage() -> AsyncIterator[Stage]:
    """The grader with its judge, and the embedder that the embedded judge asks about web passages."""
    embedder = open_embedder(EmbedSettings(), HomeSettings().data_dir)
    judge = open_judge(JudgeSettings(), LlmSettings(), embedder, prompts=prompts)
    try:
        yield Stage("grader", [Inbox.of(grade, max_workers=8, judge=judge, policy=GraderSettings().policy)])
    finally:
        await judge.aclose()
        if embedder is not None:
            await embedder.aclose()


def main() -> None:
    run_worker(open_stage, "grader")


if __name__ == "__main__":
    main()
