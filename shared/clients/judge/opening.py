"""Which judge a process uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.clients.chat import HttpChat
from shared.clients.http import Endpoint, JsonService
from shared.clients.judge.embedded import EmbeddedJudge
from shared.clients.judge.http import HttpJudge
from shared.clients.judge.protocol import Judge, JudgePrompts
from shared.settings import JudgeSettings, LlmSettings

if TYPE_CHECKING:
    from shared.clients.embeddings import Embedder


def open_judge(judge: JudgeSettings, llm: LlmSettings, embedder: Embedder | None, *, prompts: JudgePrompts) -> Judge:
    """A chat model as judge (the chat model's settings where the judge's are unset), or the embedded judge.

    `prompts` is `services.grader.prompts`. `embedder` serves the embedded judge and stays the caller's to close.
    Nothing is asked yet; close the judge afterwards.
    """
    wanted = judge.or_else(llm)
    if wanted.base_url is None:
        return EmbeddedJudge(embedder)
    endpoint = Endpoint(wanted.base_url, "CAIRN_JUDGE", wanted.api_key)
    service = JsonService(endpoint, concurrency=wanted.concurrency, timeout_s=wanted.timeout_s)
    return HttpJudge(HttpChat(service, wanted.model or "default"), prompts, max_tokens=wanted.max_tokens)
