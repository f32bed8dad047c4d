"""Refinement by meaning: which strips of the evidence are worth reading, by vectors or by a chat model.

Words choose first (strips.py), at no cost; what they chose stays wherever vectors or model fail, are late or doubtful.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Final, Protocol, TypeAlias

import numpy as np
from pydantic import BaseModel, Field, StrictInt, ValidationError

from services.grader import prompts
from services.grader.settings import GraderSettings
from services.grader.strips import cut
from shared.clients.chat import ChatModel, Completion, NoCompletion, ReplySchema, completion_or_reason, spent
from shared.clients.embedder import Embedder
from shared.contracts import Evidence, StageUsage
from shared.errors import CairnError, Misconfigured

_TIME_SHARE: Final = 0.25
"""Of the time left to the deadline; the rest is for the web search and the answer."""
_MAX_STRIPS: Final = 40
"""Embedded for one question; the embedded model takes about a tenth of a second of one core for each."""
_TOKENS_PER_STRIP: Final = 4

_KEEP: Final = ReplySchema("keep", prompts.KEEP_SCHEMA)

Strips: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refined:
    """`strips[i]` belongs to `evidence[i]`: stretches of its passage, word for word, in order, at least one."""

    strips: tuple[Strips, ...]
    usage: StageUsage | None = None
    degraded: tuple[str, ...] = ()


class Refiner(Protocol):
    """Chooses strips; raises nothing that a model does wrong: then the strips that the evidence has stay."""

    async def refine(
        self, question: str, language: str, evidence: Sequence[Evidence], *, deadline: float, max_calls: int | None
    ) -> Refined:
        """`language` is the question's, `deadline` a moment in seconds since the epoch.

        At most a quarter of the time until then is taken, and at most `max_calls` replies are asked for.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


def open_refiner(
    settings: GraderSettings, embedder: Embedder | None, open_chat: Callable[[], ChatModel | None]
) -> Refiner | None:
    """The one that the settings name, None for words. Close it afterwards; `embedder` stays the caller's to close.

    Raises Misconfigured where there is no embedder or no model to ask.
    """
    if settings.refine == "embedder":
        if embedder is None:
            raise Misconfigured("CAIRN_GRADER_REFINE=embedder needs an embedder: set CAIRN_EMBED_BASE_URL")
        return EmbeddingRefiner(embedder, within=settings.refine_within)
    if settings.refine == "judge":
        if (chat := open_chat()) is None:
            raise Misconfigured("CAIRN_GRADER_REFINE=judge needs CAIRN_JUDGE_BASE_URL or CAIRN_LLM_BASE_URL")
        return JudgeRefiner(chat)
    return None


class EmbeddingRefiner:
    """Keeps the strips whose cosine with the question is at most `within` below that of the passage's best one."""

    def __init__(self, embedder: Embedder, *, within: float) -> None:
        self._embedder = embedder
        self._within = within

    async def refine(
        self, question: str, language: str, evidence: Sequence[Evidence], *, deadline: float, max_calls: int | None
    ) -> Refined:
        chosen, found = [each.strips for each in evidence], _cuttable(evidence, language)
        # With its title, as passages are embedded: a strip often doesn't say what it is about.
        texts = [f"{evidence[n].passage.title}\n{strip}" for n, its in found.items() for strip in its][:_MAX_STRIPS]
        if not texts:
            return Refined(tuple(chosen))
        try:
            async with asyncio.timeout(_share_of_time(deadline)):
                asked, vectors = await asyncio.gather(
                    self._embedder.embed_questions([question]), self._embedder.embed_passages(texts)
                )
        except (CairnError, TimeoutError):
            return Refined(tuple(chosen), degraded=("embedder unavailable: refined by words alone",))
        cosines = iter(vectors @ asked[0] / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(asked[0]) + 1e-12))
        for n, its in found.items():
            known = list(islice(cosines, len(its)))
            if len(known) == len(its):  # else it is past the bound
                chosen[n] = tuple(
                    strip for strip, has in zip(its, known, strict=True) if has >= max(known) - self._within
                )
        return Refined(tuple(chosen))

    async def aclose(self) -> None:
        """Nothing of its own is open."""


class JudgeRefiner:
    """Asks the judge's model once a passage which of its numbered strips to keep."""

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat

    async def refine(
        self, question: str, language: str, evidence: Sequence[Evidence], *, deadline: float, max_calls: int | None
    ) -> Refined:
        found = _cuttable(evidence, language)
        timeout_s = _share_of_time(deadline)

        async def ask(its: Strips) -> Completion | NoCompletion:
            messages = prompts.keeping(question, its, fence=secrets.token_hex(8))
            max_tokens = 32 + _TOKENS_PER_STRIP * len(its)
            return await completion_or_reason(
                self._chat, messages, max_tokens=max_tokens, schema=_KEEP, timeout_s=timeout_s
            )

        async with asyncio.TaskGroup() as calls:
            tasks = {n: calls.create_task(ask(found[n])) for n in [*found][:max_calls]}
        replies = {n: reply for n, task in tasks.items() if isinstance(reply := task.result(), Completion)}
        kept = {n: its for n, reply in replies.items() if (its := read_kept(reply.text, found[n]))}
        mark = f"judge could not refine {len(found) - len(kept)} of {len(found)} passages: refined by words"
        return Refined(
            tuple(kept.get(n, each.strips) for n, each in enumerate(evidence)),
            spent("grader", *replies.values()),
            (mark,) if len(kept) < len(found) else (),
        )

    async def aclose(self) -> None:
        await self._chat.aclose()


class _Reply(BaseModel):
    keep: Annotated[list[StrictInt], Field(min_length=1)]


def read_kept(text: str, strips: Strips) -> Strips | None:
    """The strips named by `{"keep": [1, 3]}`, in their own order; None for anything but different known numbers."""
    try:
        keep = _Reply.model_validate_json(text[text.find("{") : text.rfind("}") + 1]).keep
    except ValidationError:
        return None
    if len({*keep}) < len(keep) or min(keep) < 1 or max(keep) > len(strips):
        return None
    return tuple(strips[number - 1] for number in sorted(keep))


def _cuttable(evidence: Sequence[Evidence], language: str) -> dict[int, Strips]:
    """All strips of each passage that has several, by place."""
    return {n: its for n, each in enumerate(evidence) if len(its := cut(each.passage, language)) > 1}


def _share_of_time(deadline: float) -> float:
    return max(0.0, deadline - time.time()) * _TIME_SHARE
