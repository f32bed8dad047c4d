"""What the rewriter decides: the kind of question, and what to search for. Pure; rules for English, French, Russian."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import json_repair
from pydantic import BaseModel, Field, ValidationError

from services.rewriter.prompts import PROMPT_VERSION
from shared.contracts import Question, Retrieve, Rewrite, Route, StageUsage
from shared.errors import InvalidModelReply
from shared.language import SPOKEN, detect_language, fold, terms
from shared.parts import parts_of, standing_alone

MAX_QUERY_CHARS = 400

_COMPARATIVE = re.compile(
    r"\b(compar\w*|versus|vs|differ\w*|better|cheaper|rather than|which of|"
    r"plutot|meilleure?s?|moins chere?|lequel|laquelle|lesquels|par rapport|"
    r"сравн\w*|отлич\w*|разниц\w*|лучше|дешевле|дороже|чем)\b"
)
_PROCEDURAL = re.compile(
    r"(\bhow (do|can|should|to|does one)\b|\bsteps?\b|\bguide\b|\binstructions?\b|"
    r"\bcomment (faire|puis|peut|dois|doit|on|je)\b|\betapes?\b|\bproced\w*|"
    r"\bкак (мне |правильно |можно |нужно |надо )*\w+(ть|ться|ти|чь)\b|\bпошагов\w*|\bинструкци\w*|\bпорядок\b)"
)
_TECHNICAL = re.compile(
    r"(\b(error|exception|traceback|stack|config\w*|install\w*|api|http|https|cli|version|package|"
    r"erreur|installer|configurer|paquet|ошибк\w*|установ\w*|настро\w*|верси\w*|пакет\w*)\b|[`{}<>]|--\w|\w+\(\)|\w+_\w+)"
)
_POLITE = re.compile(
    r"^(?:(?:hi|hello|hey|please|bonjour|salut|s'il (?:vous|te) pla[iî]t|здравствуйте|привет|подскажите|"
    r"скажите)\b[\s,!.]*(?:пожалуйста\b[\s,!.]*)?)+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What to search, and how the question was understood."""

    route: Route
    queries: tuple[str, ...]
    hyde: str | None = None


def language_of(asked: Question) -> str:
    """The language to answer in: the one asked for, else the question's own."""
    return asked.language or detect_language(asked.question)


def route_of(question: str) -> Route:
    """The kind of question, by its words. Comparisons first: they need passages about several things."""
    folded = fold(question)
    if _COMPARATIVE.search(folded):
        return "comparative"
    if _TECHNICAL.search(folded):
        return "technical"
    if _PROCEDURAL.search(folded):
        return "procedural"
    return "factual"


def rewrite_by_rules(msg: Rewrite, language: str, *, max_queries: int) -> Rewriting:
    """The question without its greetings, each of its parts, and what is still missing on a later hop."""
    whole = _POLITE.sub("", msg.asked.question).strip() or msg.asked.question
    if msg.missing:
        return Rewriting(route_of(whole), _distinct([msg.missing, whole], max_queries))
    return Rewriting(
        route_of(whole),
        _distinct([_with_context(whole, msg, language), *standing_alone(parts(whole), language)], max_queries),
    )


def parts(question: str) -> list[str]:
    """The single questions in a question of several; empty for a single one."""
    found = parts_of(question, detect_language(question))
    return found if len(found) > 1 else []


def _with_context(question: str, msg: Rewrite, language: str) -> str:
    """A follow-up of few words of its own is searched together with the user's question before it."""
    earlier = [turn.content for turn in msg.asked.history if turn.role == "user"]
    if earlier and len(terms(question, language)) < 3:
        return f"{earlier[-1]} {question}"
    return question


class _Reply(BaseModel):
    route: Route
    queries: list[str] = Field(min_length=1)
    hyde: str | None = None


def read_rewriting(text: str, question: str, *, max_queries: int) -> Rewriting:
    """The model's JSON. The question itself is always among the queries. Raises InvalidModelReply."""
    try:
        # By way of JSON text: half a surrogate pair, which no stream can carry, is refused here.
        reply = _Reply.model_validate_json(json.dumps(json_repair.loads(text)))
    except (ValidationError, ValueError, RecursionError) as error:
        raise InvalidModelReply("the rewriting is not the JSON that was asked for") from error
    queries = _distinct([*reply.queries[: max_queries - 1], question], max_queries)
    return Rewriting(reply.route, queries, reply.hyde[:2000] if reply.hyde else None)


def by_model(
    msg: Rewrite, reply: str, usage: StageUsage, rules: Rewriting, language: str, *, max_queries: int
) -> Retrieve:
    """The model's rewriting, or the rules' where its reply can't be read, marked."""
    try:
        rewriting = read_rewriting(reply, msg.asked.question, max_queries=max_queries)
    except InvalidModelReply as unreadable:
        return without_model(msg, rules, language, str(unreadable), usage=usage)
    return search(msg, rewriting, language, usage=usage, version=PROMPT_VERSION)


def without_model(
    msg: Rewrite, rules: Rewriting, language: str, why: str, *, usage: StageUsage | None = None
) -> Retrieve:
    """The rules' rewriting, marked with why it is not the model's."""
    return search(msg, rules, language, usage=usage, degraded=(f"rewritten by rules: {why}",))


def search(
    msg: Rewrite,
    rewriting: Rewriting,
    language: str,
    *,
    usage: StageUsage | None = None,
    version: str | None = None,
    degraded: tuple[str, ...] = (),
) -> Retrieve:
    """The command that searches for it."""
    header = msg.header.updated(
        language=language if language in SPOKEN or msg.asked.language else "en",
        usage=usage,
        versions={"rewrite_prompt": version} if version else None,
        degraded=degraded,
    )
    return Retrieve(
        header=header,
        asked=msg.asked,
        route=rewriting.route,
        queries=rewriting.queries,
        hyde=rewriting.hyde,
        evidence=msg.evidence,
    )


def _distinct(queries: Sequence[str], limit: int) -> tuple[str, ...]:
    """Queries that differ in more than case and blanks, cut to a length that search engines take."""
    seen: dict[str, str] = {}
    for query in queries:
        text = " ".join(query.split())[:MAX_QUERY_CHARS]
        if text:
            seen.setdefault(fold(text).rstrip("?.! "), text)
    return tuple(seen.values())[:limit]
