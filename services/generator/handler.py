"""cairn:generator -> generate -> cairn:results"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence

from services.generator import decision, extractive, prompts
from services.generator.decision import NoAnswer, Uncited, Written
from services.generator.settings import AnsweringPolicy
from services.generator.units import candidates
from shared.clients.chat import ChatModel, Completion, Message
from shared.clients.embeddings import Embedder
from shared.contracts import Answered, Evidence, Generate, Header, StageUsage
from shared.errors import EmbedderUnavailable, ModelUnavailable, PermanentError

ATTEMPTS = 2
"""Replies asked for: the second one with what was wrong with the first."""
RESERVE_S = 1.0
"""Kept of the time to the deadline, to publish what there is when the model stays silent."""
WORDS_ALONE = "embedder unavailable: sentences chosen by words alone"
BUDGET_SPENT = "the job's budget for models is spent"


async def generate(
    msg: Generate,
    *,
    chat: ChatModel | None,
    embedder: Embedder | None,
    policy: AnsweringPolicy,
    now: Callable[[], float] = time.time,
) -> Answered:
    """Answer from the evidence with citations, or abstain: by the chat model, or without one by quoting."""
    evidence = decision.readable(msg)
    match decision.course(msg, evidence, policy):
        case "abstain":
            return decision.abstained(msg.header, msg.verdict, now=now())
        case "citations":
            return decision.cited(msg.header, msg.verdict, evidence, now=now())
        case "write" if chat is None:
            return await _quote(msg, evidence, embedder, now)
        case "write":
            return await _write(msg, evidence, chat, policy, now)


async def _write(
    msg: Generate, evidence: Sequence[Evidence], chat: ChatModel, policy: AnsweringPolicy, now: Callable[[], float]
) -> Answered:
    """The model's answer; citations only where the model fails or may not be asked any more (promise 3)."""
    header, shown = msg.header, prompts.fit(evidence, policy.passage_tokens)
    messages = _messages(msg, shown, policy)
    usage = StageUsage(stage="generator")
    for _ in range(ATTEMPTS):
        if not _affordable(header, usage, messages):
            return decision.cited(_spent(header, usage, BUDGET_SPENT), msg.verdict, evidence, now=now())
        timeout_s = max(0.1, min(policy.timeout_s, header.deadline - RESERVE_S - now()))
        try:
            completion = await chat.complete(messages, max_tokens=policy.answer_tokens, timeout_s=timeout_s)
        except (ModelUnavailable, PermanentError) as failed:
            return decision.cited(_spent(header, usage, str(failed)), msg.verdict, evidence, now=now())
        usage = _added(usage, completion)
        match decision.read_reply(completion.text, completion.finish_reason, shown, header.language):
            case Written() as written:
                return decision.answered(_spent(header, usage), msg.verdict, written, writer=chat.name, now=now())
            case NoAnswer():
                break
            case Uncited(finding):
                messages = [
                    *messages,
                    {"role": "assistant", "content": completion.text},
                    {"role": "user", "content": prompts.correction(finding)},
                ]
    return decision.abstained(_spent(header, usage), msg.verdict, now=now())


def _messages(msg: Generate, shown: Sequence[prompts.Shown], policy: AnsweringPolicy) -> list[Message]:
    nonce = secrets.token_hex(8)
    earlier = prompts.recent(msg.asked.history, turns=policy.history_turns, chars=policy.history_chars)
    return [
        {"role": "system", "content": prompts.system_prompt(msg.header.language, nonce)},
        *({"role": turn.role, "content": turn.content} for turn in earlier),
        {"role": "user", "content": prompts.user_prompt(msg.asked.question, shown, nonce)},
    ]


def _affordable(header: Header, usage: StageUsage, messages: Sequence[Message]) -> bool:
    needed = sum(prompts.estimated_tokens(message["content"]) for message in messages)
    left = header.budget.tokens - usage.prompt_tokens - usage.completion_tokens
    return header.budget.model_calls > usage.calls and left >= needed


def _added(usage: StageUsage, completion: Completion) -> StageUsage:
    return StageUsage(
        stage=usage.stage,
        calls=usage.calls + 1,
        prompt_tokens=usage.prompt_tokens + completion.prompt_tokens,
        completion_tokens=usage.completion_tokens + completion.completion_tokens,
        estimated=usage.estimated or completion.estimated,
    )


def _spent(header: Header, usage: StageUsage, failure: str | None = None) -> Header:
    degraded = () if failure is None else (decision.citations_only(failure),)
    return header.updated(usage=usage, degraded=degraded, versions={"answer_prompt": prompts.PROMPT_VERSION})


async def _quote(
    msg: Generate, evidence: Sequence[Evidence], embedder: Embedder | None, now: Callable[[], float]
) -> Answered:
    """The sentences that answer best, by words, and by meaning where words are not enough."""
    header, question = msg.header, msg.asked.question
    units = candidates(evidence)
    cosines: dict[int, float] = {}
    compared = extractive.needing_vectors(question, header.language, units, evidence) if embedder is not None else []
    if embedder is not None and compared:
        try:
            cosines = await _cosines(embedder, question, {index: units[index].meant(question) for index in compared})
        except (EmbedderUnavailable, PermanentError):  # promise 3: degrade, don't fail
            header = header.updated(degraded=(WORDS_ALONE,))
    chosen = extractive.choose(question, header.language, units, evidence, cosines)
    written = extractive.compose(chosen, evidence, header.language)
    if written is None:
        return decision.abstained(header, msg.verdict, now=now())
    return decision.answered(header, msg.verdict, written, writer=extractive.WRITER, now=now())


async def _cosines(embedder: Embedder, question: str, texts: dict[int, str]) -> dict[int, float]:
    (asked,) = await embedder.embed_questions([question])
    vectors = await embedder.embed_passages(list(texts.values()))
    return {index: _cosine(asked, vector) for index, vector in zip(texts, vectors, strict=True)}


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    length = math.hypot(*left) * math.hypot(*right)
    return float(sum(a * b for a, b in zip(left, right, strict=True)) / length) if length else 0.0
