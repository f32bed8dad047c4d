"""What the rewriter decides: what to search for, or that nothing is to be searched. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from services.rewriter import rules
from services.rewriter.prompts import CHITCHAT, PROMPT_VERSION, UNCLEAR
from services.rewriter.settings import Collection, RewritingPolicy
from shared.contracts import Generate, Retrieve, Rewrite, Route, StageUsage, TrailStep
from shared.language import SPOKEN, detect_language, fold
from shared.parts import standing_alone

MAX_QUERY_CHARS: Final = 400
_MAX_HYDE_CHARS: Final = 2_000
_MAX_CLARIFICATION_CHARS: Final = 300
_MAX_REPLIED: Final = 20
"""Queries of a reply that are looked at."""

SMALL_TALK: Final = "small talk: nothing was searched"
ASKED_BACK: Final = "unclear: asked back, nothing was searched"
NOTHING_NEW: Final = "no further hop: there is no query that was not searched already"
_SAY_MORE: Final = {
    "en": "What exactly would you like to know?",
    "fr": "Que souhaitez-vous savoir exactement ?",
    "ru": "Что именно вы хотите узнать?",
}


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What to search, and how the question was understood. Without queries nothing is searched."""

    route: Route = "factual"
    queries: tuple[str, ...] = ()
    hyde: str | None = None
    collection: str | None = None
    small_talk: bool = False
    clarification: str = ""
    repeats: bool = False
    """Whether something was proposed that had been searched already."""
    version: str | None = None
    """Of the prompt, where it is a model's."""
    degraded: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether no model need be asked."""
        return self.small_talk or bool(self.clarification)

    def standing_in(self, why: str) -> Rewriting:
        """The rules' rewriting, marked with why it is not the model's."""
        return replace(self, degraded=(f"rewritten by rules: {why}",))


def by_rules(msg: Rewrite, language: str, policy: RewritingPolicy) -> Rewriting:
    """The question without its greetings, and each of its parts; on a later hop what is missing."""
    asked = msg.asked.question
    whole = rules.without_greeting(asked)
    if msg.missing or msg.header.hop:
        queries = [msg.missing or "", whole]
    elif policy.clarify and not any(map(str.isalnum, asked)):
        return Rewriting(clarification=_SAY_MORE.get(language, _SAY_MORE["en"]))
    elif policy.small_talk and rules.is_small_talk(asked):
        return Rewriting(small_talk=True)
    else:
        alone = standing_alone(rules.parts(whole), language)
        queries = [rules.with_context(whole, msg.asked, language), *alone]
    return Rewriting(rules.route_of(whole), _new(msg, queries, policy.max_queries), repeats=bool(msg.missing))


def offered(msg: Rewrite, policy: RewritingPolicy) -> tuple[Collection, ...]:
    """The collections to choose from: those named to this asker, and none where the question names its own."""
    if msg.asked.collection is not None:
        return ()
    return tuple(each for each in policy.collections if each.is_for(msg.header.principal))


def by_model(
    msg: Rewrite, reply: Mapping[str, Any] | None, found: Rewriting, language: str, policy: RewritingPolicy
) -> Rewriting:
    """What the model's reply says, as far as settings and rights admit; `found` by rules fills in what it lacks.

    The rules' first query is searched, too: no reply can turn a question into another one.
    """
    if reply is None:
        return found.standing_in("the model's reply is not the JSON that was asked for")
    is_first = msg.header.hop == 0
    intent = _said(reply.get("intent"), MAX_QUERY_CHARS).lower()
    if is_first and policy.small_talk and intent == CHITCHAT:
        return Rewriting(small_talk=True, version=PROMPT_VERSION)
    ask_back = _said(reply.get("clarification"), _MAX_CLARIFICATION_CHARS)
    if is_first and policy.clarify and intent == UNCLEAR and ask_back:
        is_foreign = language in SPOKEN and detect_language(ask_back) != language
        return Rewriting(clarification=_SAY_MORE[language] if is_foreign else ask_back, version=PROMPT_VERSION)
    queries = _replied(reply.get("queries"))
    lead = queries[:1]
    if is_first:
        whole = _said(reply.get("question"), MAX_QUERY_CHARS) if policy.stand_alone and msg.asked.history else ""
        lead = [whole] if detect_language(whole) == detect_language(found.queries[0]) else []
    if not any([*lead, *queries]) and (is_first or reply.get("queries") != []):
        return found.standing_in("the model's reply has no queries")
    route: Route = next((known for known in get_args(Route) if known == intent), found.route)
    hyde = _said(reply.get("hyde"), _MAX_HYDE_CHARS) if route in policy.hyde_routes else ""
    return Rewriting(
        route,
        _new(msg, [*lead, *found.queries[:1], *queries], policy.max_queries),
        hyde or None,
        next((each.name for each in offered(msg, policy) if each.name == reply.get("collection")), None),
        repeats=bool(queries or msg.missing),
        version=PROMPT_VERSION,
    )


def next_command(msg: Rewrite, found: Rewriting, language: str, usage: StageUsage | None = None) -> Retrieve | Generate:
    """Search; or on to the generator, with what earlier hops found, where nothing is to be searched."""
    header = msg.header.updated(
        language=language if language in SPOKEN or msg.asked.language else "en",
        usage=usage,
        versions={"rewrite_prompt": found.version} if found.version else None,
        degraded=found.degraded,
    )
    if found.queries:
        return Retrieve(
            header=header,
            asked=msg.asked,
            route=found.route,
            queries=found.queries,
            hyde=found.hyde,
            collection=found.collection,
            evidence=msg.evidence,
        )
    reason = SMALL_TALK if found.small_talk else ASKED_BACK if found.clarification else NOTHING_NEW
    step = TrailStep(hop=header.hop, reason=reason)
    return Generate(
        header=header.updated(step=step, degraded=(reason,) if found.repeats else ()),
        asked=msg.asked,
        route=found.route,
        verdict="incorrect" if found.is_settled else msg.verdict or "ambiguous",
        evidence=msg.evidence,
        small_talk=found.small_talk,
        clarification=found.clarification,
    )


def _replied(value: object) -> list[str]:
    """The texts in what should be a list of them."""
    found = value if isinstance(value, list) else [value]
    return [text for each in found[:_MAX_REPLIED] if (text := _said(each, MAX_QUERY_CHARS))]


def _said(value: object, limit: int) -> str:
    """`value` on one line without what can't be shown, as halves of characters; empty where it is no text."""
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(filter(str.isprintable, line))[:limit].strip()


def _new(msg: Rewrite, queries: Iterable[str], limit: int) -> tuple[str, ...]:
    """The first `limit` queries that differ, without those that earlier hops searched, cut to what engines take."""
    steps = [step for step in msg.header.trail if step.hop < msg.header.hop]
    searched = {_compared(query) for step in steps for query in step.queries}
    found: dict[str, str] = {}
    for query in queries:
        text = " ".join(query.split())[:MAX_QUERY_CHARS]
        if text and (key := _compared(text)) not in searched:
            found.setdefault(key, text)
    return tuple(found.values())[:limit]


def _compared(query: str) -> str:
    """Case, accents, blanks and closing signs make no other query."""
    return " ".join(fold(query).split()).rstrip("?.! ")
