"""Which judge a process uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shared.clients.chat import ChatModel, open_chat
from shared.clients.judge.cache import CachedJudge
from shared.clients.judge.cascade import CascadeJudge
from shared.clients.judge.embedded import EmbeddedJudge
from shared.clients.judge.http import HttpJudge
from shared.clients.judge.protocol import Judge, JudgePrompts
from shared.clients.judge.sparing import SparingJudge
from shared.runtime.common import Common
from shared.settings import JudgeSettings, LlmSettings, Prices

if TYPE_CHECKING:
    from shared.clients.embeddings import Embedder

_ATTEMPTS: Final = 6
"""A passage without a grade may cost the decision: tries go on while there is time, if the grade still matters."""


def open_judge(
    settings: JudgeSettings,
    llm: LlmSettings,
    embedder: Embedder | None,
    *,
    prompts: JudgePrompts,
    common: Common | None = None,
    prices: Prices | None = None,
) -> Judge:
    """A chat model as judge (the chat model's settings where the judge's are unset), or the embedded judge.

    `prompts` is `services.grader.prompts`. `embedder` serves the embedded judge and stays the caller's to close; in
    `common` grades are remembered and limits kept. Nothing is asked yet; close the judge afterwards.
    """
    chat = open_judge_chat(settings, llm, common=common, prices=prices)
    if chat is None:
        return EmbeddedJudge(embedder)
    judge: Judge = HttpJudge(chat, prompts, max_tokens=settings.max_tokens, batch=settings.batch)
    if common is not None and settings.cache_ttl_s:
        judge = CachedJudge(judge, common, ttl_s=settings.cache_ttl_s)
    cheap = EmbeddedJudge(embedder)
    if settings.cascade:
        judge = CascadeJudge(cheap, judge, low=settings.cascade_low, high=settings.cascade_high)
    return SparingJudge(cheap, judge)


def open_judge_chat(
    settings: JudgeSettings, llm: LlmSettings, *, common: Common | None = None, prices: Prices | None = None
) -> ChatModel | None:
    """The chat model that judges, or None where neither settings name one."""
    return open_chat(
        settings.or_else(llm),
        setting="CAIRN_JUDGE" if settings.base_url is not None else "CAIRN_LLM",
        used_as="CAIRN_JUDGE",
        attempts=_ATTEMPTS,
        common=common,
        prices=prices,
    )
