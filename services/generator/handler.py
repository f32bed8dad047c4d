"""cairn:generator -> generate -> cairn:results, or cairn:rewriter for another hop"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from services.generator import decision, extractive
from services.generator.settings import AnsweringPolicy
from services.generator.units import candidates
from services.generator.watch import Groundedness
from services.generator.writing import Writing
from shared.clients.chat import ChatModel
from shared.clients.embeddings import Embedder
from shared.contracts import Answered, Evidence, Generate, Header, Rewrite
from shared.errors import EmbedderUnavailable, PermanentError
from shared.runtime.controls import Controls
from shared.runtime.telling import Telling

QUOTED = "the job's budget for models is spent: quoted, not written"
WORDS_ALONE = "embedder unavailable: sentences chosen by words alone"


async def generate(
    msg: Generate,
    *,
    chat: ChatModel | None,
    embedder: Embedder | None,
    policy: AnsweringPolicy,
    controls: Controls | None = None,
    telling: Telling | None = None,
    groundedness: Groundedness | None = None,
    now: Callable[[], float] = time.time,
) -> Answered | Rewrite:
    """Answer from the evidence with citations, search once more, or abstain: by the chat model, or by quoting.

    What the model writes is told while it writes, and checked before it is the outcome.
    """
    evidence = decision.readable(msg)
    match decision.course(msg, evidence, policy):
        case "talk":
            return decision.talked(msg, now=now())
        case "abstain":
            return decision.abstained(msg, msg.header, policy, now=now())
        case "citations":
            return decision.cited(msg.header, msg.verdict, evidence, now=now())
        case "write" if controls is not None and not controls.generation:
            marked = msg.header.updated(degraded=(decision.SWITCHED_OFF,))
            return decision.cited(marked, msg.verdict, evidence, now=now())
        case "write" if chat is None or msg.header.budget.spent:
            header = msg.header if chat is None else msg.header.updated(degraded=(QUOTED,))
            return await _quote(msg, header, evidence, embedder, policy=policy, now=now)
        case "write":
            writing = Writing(msg, evidence, chat=chat, policy=policy, telling=telling, now=now)
            outcome = await writing.outcome()
            if groundedness is not None and writing.held is not None:
                await groundedness.note(held=writing.held)
            return outcome


async def _quote(
    msg: Generate,
    header: Header,
    evidence: Sequence[Evidence],
    embedder: Embedder | None,
    *,
    policy: AnsweringPolicy,
    now: Callable[[], float],
) -> Answered:
    """The sentences that answer best, by words, and by meaning where words are not enough."""
    question = msg.asked.question
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
        return decision.abstained(msg, header, policy, now=now())
    return decision.answered(header, msg.verdict, written, writer=extractive.WRITER, now=now())


async def _cosines(embedder: Embedder, question: str, texts: dict[int, str]) -> dict[int, float]:
    (asked,) = await embedder.embed_questions([question])
    vectors = await embedder.embed_passages(list(texts.values()))
    return {index: _cosine(asked, vector) for index, vector in zip(texts, vectors, strict=True)}


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    length = math.hypot(*left) * math.hypot(*right)
    return float(sum(a * b for a, b in zip(left, right, strict=True)) / length) if length else 0.0
