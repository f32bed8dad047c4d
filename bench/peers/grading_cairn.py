"""Cairn's grader in process: its judge, its handler, its decision with refinement, its settings' defaults."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.peers.asked import CALLS_AT_ONCE, AskedQuestion, Side
from services.grader import prompts
from services.grader.handler import grade
from services.grader.settings import GraderSettings
from shared.clients.judge import open_judge
from shared.contracts import Grade, Header, Passage, Question, SearchWeb
from shared.settings import JudgeSettings, LlmSettings

_numbers = itertools.count()


def command(asked: AskedQuestion) -> Grade:
    """The question as the retriever would send it on."""
    now = time.time()
    number = next(_numbers)
    passages = [
        Passage(passage_id=f"{number}.{n}", document_id="d", title="Notes", uri="u", text=text, language="en")
        for n, text in enumerate(asked.passages)
    ]
    return Grade(
        header=Header(job_id=f"job-{number}", entry_id="1-0", submitted_at=now, deadline=now + 300, language="en"),
        asked=Question(question=asked.question),
        route="factual",
        queries=(asked.question,),
        passages=tuple(passages),
    )


@asynccontextmanager
async def opened(base_url: str) -> AsyncIterator[Side]:
    settings = JudgeSettings(base_url=base_url, model="mock", concurrency=CALLS_AT_ONCE, _env_file=None)
    judge = open_judge(settings, LlmSettings(_env_file=None), None, prompts=prompts)
    policy = GraderSettings(_env_file=None).policy

    async def side(asked: AskedQuestion) -> bool:
        return isinstance(await grade(command(asked), judge=judge, policy=policy), SearchWeb)

    try:
        yield side
    finally:
        await judge.aclose()
