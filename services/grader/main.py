"""The grader: judges every passage in parallel and decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from services.grader import prompts
from services.grader.handler import grade
from services.grader.keeping import open_keeper
from services.grader.refining import open_refiner
from services.grader.settings import GraderSettings
from shared.clients.embeddings import open_embedder
from shared.clients.judge import open_judge, open_judge_chat
from shared.runtime.common import Common
from shared.runtime.stage import Inbox, Stage
from shared.runtime.worker import run_worker
from shared.settings import EmbedSettings, HomeSettings, JudgeSettings, LlmSettings, PriceSettings


@asynccontextmanager
async def open_stage(common: Common) -> AsyncIterator[Stage]:
    """The grader with its judge and refiner, and the embedder that both may ask."""
    settings, asked, llm, prices = GraderSettings(), JudgeSettings(), LlmSettings(), PriceSettings().prices
    async with AsyncExitStack() as closing:
        embedder = open_embedder(EmbedSettings(), HomeSettings().data_dir)
        if embedder is not None:
            closing.push_async_callback(embedder.aclose)
        judge = open_judge(asked, llm, embedder, prompts=prompts, common=common, prices=prices)
        closing.push_async_callback(judge.aclose)
        refiner = open_refiner(settings, embedder, lambda: open_judge_chat(asked, llm, common=common, prices=prices))
        if refiner is not None:
            closing.push_async_callback(refiner.aclose)
        yield Stage(
            "grader",
            [
                Inbox.of(
                    grade,
                    max_workers=8,
                    judge=judge,
                    policy=settings.policy,
                    refiner=refiner,
                    keeper=open_keeper(settings, common),
                )
            ],
        )


def main() -> None:
    run_worker(open_stage, "grader")


if __name__ == "__main__":
    main()
