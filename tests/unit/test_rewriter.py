"""What is searched for a question: by rules, by a model, and by rules where the model fails."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rewriter.decision import (
    MAX_QUERY_CHARS,
    by_model,
    language_of,
    parts,
    read_rewriting,
    rewrite_by_rules,
    route_of,
    search,
    without_model,
)
from services.rewriter.handler import rewrite
from services.rewriter.prompts import PROMPT_VERSION, conversation
from services.rewriter.settings import RewritingPolicy
from shared.clients.chat import Completion, Message
from shared.contracts import (
    Budget,
    Evidence,
    Passage,
    PassageGrade,
    Principal,
    Retrieve,
    Rewrite,
    Route,
    StageUsage,
    Turn,
)
from shared.errors import CairnError, InvalidModelReply, Misconfigured, ModelUnavailable
from tests.support.bus import header, question

ROUTES: list[tuple[str, Route, str]] = [
    ("What is the return window for tents?", "factual", "en"),
    ("How long is the warranty?", "factual", "en"),
    ("Who signs the lease?", "factual", "en"),
    ("Does the shop have a stepladder?", "factual", "en"),
    ("What is a stackable cup?", "factual", "en"),
    ("What is in the versioned catalogue?", "factual", "en"),
    ("How do I return a tent?", "procedural", "en"),
    ("How can I cancel my order?", "procedural", "en"),
    ("How to wash a down jacket?", "procedural", "en"),
    ("What are the steps to register a boot?", "procedural", "en"),
    ("Is there a guide for pitching it?", "procedural", "en"),
    ("Is the NK-1 better than the NK-2?", "comparative", "en"),
    ("Compare the two sleeping bags.", "comparative", "en"),
    ("Which of the stoves burns longest?", "comparative", "en"),
    ("What is the difference between gas and petrol?", "comparative", "en"),
    ("Express versus standard delivery", "comparative", "en"),
    ("How do I compare two error logs?", "comparative", "en"),
    ("What does error E42 mean?", "technical", "en"),
    ("How do I install the package?", "technical", "en"),
    ("What does `--force` do?", "technical", "en"),
    ("What does open_stage() return?", "technical", "en"),
    ("Combien coûte la livraison en point relais ?", "factual", "fr"),
    ("Quelle est la durée de la garantie ?", "factual", "fr"),
    ("Qui répare les tentes ?", "factual", "fr"),
    ("Comment est calculé le prix ?", "factual", "fr"),
    ("Comment puis-je retourner une tente ?", "procedural", "fr"),
    ("Comment faire pour annuler ma commande ?", "procedural", "fr"),
    ("Quelles sont les étapes du retour ?", "procedural", "fr"),
    ("Lequel des deux réchauds est meilleur ?", "comparative", "fr"),
    ("Quelle différence entre les deux sacs ?", "comparative", "fr"),
    ("La livraison express est-elle moins chère ?", "comparative", "fr"),
    ("Que signifie l'erreur 42 ?", "technical", "fr"),
    ("Comment installer le paquet ?", "technical", "fr"),
    ("Сколько стоит доставка в Казахстан?", "factual", "ru"),
    ("Какой срок гарантии?", "factual", "ru"),
    ("Кто ремонтирует палатки?", "factual", "ru"),
    ("Как работает программа лояльности?", "factual", "ru"),
    ("Как вернуть палатку?", "procedural", "ru"),
    ("Как правильно постирать куртку?", "procedural", "ru"),
    ("Есть ли пошаговая инструкция?", "procedural", "ru"),
    ("Чем отличается палатка от тента?", "comparative", "ru"),
    ("Что лучше: газ или бензин?", "comparative", "ru"),
    ("Какая палатка дешевле?", "comparative", "ru"),
    ("Что значит ошибка 42?", "technical", "ru"),
    ("Как установить пакет?", "technical", "ru"),
]


@pytest.mark.parametrize(("text", "route", "language"), ROUTES)
def test_the_route_and_the_language_of_a_question(text: str, route: Route, language: str) -> None:
    assert (route_of(text), language_of(question(text))) == (route, language)
    assert route_of(text.upper()) == route


def test_the_language_asked_for_wins() -> None:
    assert language_of(question("Why?", language="de")) == "de"


# --- by rules ------------------------------------------------------------------------------------------------------


def rewriting(text: str, *, missing: str | None = None, header_fields: Any = None, **fields: Any) -> Rewrite:
    return Rewrite(header=header(**(header_fields or {})), asked=question(text, **fields), missing=missing)


def queries(msg: Rewrite, *, max_queries: int = 4) -> tuple[str, ...]:
    return rewrite_by_rules(msg, language_of(msg.asked), max_queries=max_queries).queries


PARTS = [
    # what each part begins with; one that leans on those before it gets their names at its end
    (
        "What does it cost to rent the tent, and what does the same tent cost new?",
        ["What does it cost to rent the tent", "what does the same tent cost new"],
    ),
    ("Who is the owner and where do they live?", ["Who is the owner", "where do they live"]),
    ("How long is the warranty? Who pays for the return?", ["How long is the warranty", "Who pays for the return"]),
    ("Combien coûte la tente et quand arrive-t-elle ?", ["Combien coûte la tente", "quand arrive-t-elle"]),
    ("Quel est le prix et où acheter la tente ?", ["Quel est le prix", "où acheter la tente"]),
    ("Сколько стоит палатка и когда её привезут?", ["Сколько стоит палатка", "когда её привезут"]),
    ("Где находится склад, а также сколько он стоит?", ["Где находится склад", "сколько он стоит"]),
    ("What is bread and butter?", []),
    ("Salt and pepper price", []),
    ("Why?", []),
]


@pytest.mark.parametrize(("text", "beginnings"), PARTS)
def test_the_parts_of_a_question(text: str, beginnings: list[str]) -> None:
    found = parts(text)
    assert len(found) == len(beginnings)
    assert all(part.startswith(beginning) for part, beginning in zip(found, beginnings, strict=True))


def test_a_question_of_parts_is_searched_whole_and_in_parts() -> None:
    text = "How long is the warranty of tents? Who pays for the return of boots?"
    assert queries(rewriting(text)) == (text, *parts(text))
    assert len(parts(text)) == 2
    assert queries(rewriting(text), max_queries=1) == (text,)


GREETINGS = [
    ("Hi! What is it?", "What is it?"),
    ("Hello, please, who signs the lease?", "who signs the lease?"),
    ("Bonjour, combien ?", "combien ?"),
    ("S'il vous plaît, combien coûte la tente ?", "combien coûte la tente ?"),
    ("Здравствуйте! Подскажите, пожалуйста, сколько стоит?", "сколько стоит?"),
    # words that only begin like a greeting
    ("History of tents?", "History of tents?"),
    ("Hidden fees?", "Hidden fees?"),
    ("Heyday of tents?", "Heyday of tents?"),
    ("Приветственный бонус?", "Приветственный бонус?"),
    # nothing but a greeting
    ("Bonjour", "Bonjour"),
]


@pytest.mark.parametrize(("text", "expected"), GREETINGS)
def test_a_greeting_is_not_searched_for(text: str, expected: str) -> None:
    assert queries(rewriting(text))[0] == expected


HISTORY = (
    Turn(role="user", content="What does the tent NK-T2-310 cost?"),
    Turn(role="assistant", content="It costs 310 euros."),
)


def test_a_follow_up_is_searched_with_the_question_before_it() -> None:
    assert queries(rewriting("And to rent?", history=HISTORY)) == ("What does the tent NK-T2-310 cost? And to rent?",)


def test_a_follow_up_takes_the_last_question_not_the_last_turn() -> None:
    history = (Turn(role="user", content="Something older"), *HISTORY)
    (query,) = queries(rewriting("And new?", history=history))
    assert "older" not in query
    assert "310 euros" not in query


def test_a_question_that_stands_alone_is_searched_alone() -> None:
    text = "How long may customers return sleeping bags?"
    assert queries(rewriting(text, history=HISTORY)) == (text,)


def test_turns_of_the_assistant_alone_are_no_context() -> None:
    assert queries(rewriting("And to rent?", history=HISTORY[1:])) == ("And to rent?",)


def test_a_later_hop_searches_what_is_missing_first() -> None:
    found = rewrite_by_rules(rewriting("How do I return it?", missing="the address of the depot"), "en", max_queries=4)
    assert found.queries == ("the address of the depot", "How do I return it?")
    assert found.route == "procedural"


def test_a_later_hop_of_one_query_searches_what_is_missing() -> None:
    assert queries(rewriting("How?", missing="the depot"), max_queries=1) == ("the depot",)


def test_a_long_question_is_cut_for_the_search() -> None:
    assert all(len(query) <= MAX_QUERY_CHARS for query in queries(rewriting("word " * 1_000)))


@settings(deadline=None)
@given(
    text=st.text(min_size=1, max_size=300).filter(str.strip),
    missing=st.none() | st.text(max_size=50),
    max_queries=st.integers(1, 4),
)
def test_every_question_gets_a_search(text: str, missing: str | None, max_queries: int) -> None:
    msg = rewriting(text, missing=missing, history=HISTORY)
    language = language_of(msg.asked)
    command = search(msg, rewrite_by_rules(msg, language, max_queries=max_queries), language)
    assert 1 <= len(command.queries) <= max_queries
    assert all(query.strip() for query in command.queries)


# --- the model's reply ---------------------------------------------------------------------------------------------


def reply(*queries: Any, route: Any = "factual", **fields: Any) -> str:
    return json.dumps({"route": route, "queries": list(queries), **fields})


READABLE = [
    pytest.param(reply("a"), ("a", "Q?"), id="JSON"),
    pytest.param(f"```json\n{reply('a')}\n```", ("a", "Q?"), id="fenced"),
    pytest.param(f"Sure, here you are: {reply('a')} Anything else?", ("a", "Q?"), id="in prose"),
    pytest.param(reply("a")[:-2], ("a", "Q?"), id="cut off"),
    pytest.param("{'route': 'factual', 'queries': ['a',],}", ("a", "Q?"), id="single quotes, trailing commas"),
    pytest.param(reply("a", confidence=1, reason="…"), ("a", "Q?"), id="more than asked for"),
    pytest.param(reply(*"abcdef"), ("a", "b", "c", "Q?"), id="more than four"),
    pytest.param(reply("", "  ", "a"), ("a", "Q?"), id="some are empty"),
    pytest.param(reply("", ""), ("Q?",), id="all are empty"),
    pytest.param(reply("A", "a", " a? "), ("A", "Q?"), id="the same, written differently"),
    pytest.param(reply("q"), ("q",), id="the question itself"),
    pytest.param(reply("x" * 10_000), ("x" * MAX_QUERY_CHARS, "Q?"), id="endless"),
    pytest.param(reply("a\n\t b"), ("a b", "Q?"), id="blanks"),
]


@pytest.mark.parametrize(("text", "expected"), READABLE)
def test_a_reply_that_can_be_read(text: str, expected: tuple[str, ...]) -> None:
    found = read_rewriting(text, "Q?", max_queries=4)
    assert (found.route, found.queries) == ("factual", expected)


UNREADABLE = [
    pytest.param("", id="empty"),
    pytest.param("I'm sorry, I can't help with that.", id="prose"),
    pytest.param("null", id="null"),
    pytest.param("42", id="number"),
    pytest.param(f"[{reply('a')}]", id="list"),
    pytest.param(reply("a", route="poetic"), id="no such route"),
    pytest.param(reply("a", route=None), id="null route"),
    pytest.param('{"queries": ["a"]}', id="no route"),
    pytest.param('{"route": "factual"}', id="no queries"),
    pytest.param(reply(), id="empty queries"),
    pytest.param('{"route": "factual", "queries": "a"}', id="queries are a string"),
    pytest.param(reply(7), id="a query is a number"),
    pytest.param(reply({"q": "a"}), id="a query is an object"),
    pytest.param(reply("a", hyde=["b"]), id="hyde is a list"),
    pytest.param(reply("\ud83d"), id="half a character"),
    pytest.param("[" * 50_000, id="deep"),
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_reply_that_cannot_be_read_is_the_rules_turn(text: str) -> None:
    with pytest.raises(InvalidModelReply):
        read_rewriting(text, "Q?", max_queries=4)
    msg = rewriting("Who is the owner and where do they live?")
    rules = rewrite_by_rules(msg, "en", max_queries=4)
    command = by_model(msg, text, StageUsage(stage="rewriter", calls=1), rules, "en", max_queries=4)
    assert (command.route, command.queries) == (rules.route, rules.queries)
    assert command.header.degraded[0].startswith("rewritten by rules: ")
    assert command.header.usage == (StageUsage(stage="rewriter", calls=1),)
    assert command.header.versions == {}


@settings(deadline=None)
@given(text=st.text(max_size=80))
def test_any_reply_gives_a_command_that_can_be_published(text: str) -> None:
    msg = rewriting("Why?")
    rules = rewrite_by_rules(msg, "en", max_queries=4)
    command = by_model(msg, text, StageUsage(stage="rewriter", calls=1), rules, "en", max_queries=4)
    assert Retrieve.model_validate_json(command.model_dump_json()) == command


def test_a_hypothetical_passage_is_taken_and_cut() -> None:
    assert read_rewriting(reply("a", hyde="x" * 9_000), "Q?", max_queries=4).hyde == "x" * 2_000
    assert read_rewriting(reply("a", hyde=""), "Q?", max_queries=4).hyde is None


def test_a_reply_changes_nothing_but_route_queries_and_hyde() -> None:
    """A model that obeyed an injected text can't widen the search: rights, filters and limits are not its to say."""
    msg = rewriting("Why?", filters={"document_ids": ["mine"]}, header_fields={"principal": Principal(tenant="acme")})
    forged = reply("a", principal={"tenant": "globex"}, filters={}, top_k=50, collection="secrets", hop=9)
    rules = rewrite_by_rules(msg, "en", max_queries=4)
    command = by_model(msg, forged, StageUsage(stage="rewriter", calls=1), rules, "en", max_queries=4)
    assert command.asked == msg.asked
    assert command.header.principal == Principal(tenant="acme")
    assert command.header.hop == 0


def test_the_question_is_searched_whatever_the_model_wrote() -> None:
    assert "Q?" in read_rewriting(reply(*"abcd"), "Q?", max_queries=4).queries
    assert read_rewriting(reply("forged"), "Q?", max_queries=1).queries == ("Q?",)


# --- the command ---------------------------------------------------------------------------------------------------


def kept() -> Evidence:
    passage = Passage(passage_id="p", document_id="d", title="t", uri="u", text="Known already.")
    return Evidence(passage=passage, grade=PassageGrade(score=0.9), strips=("Known already.",))


def test_what_is_known_goes_on_with_the_search() -> None:
    msg = rewriting("Why?", missing="the depot").model_copy(update={"evidence": (kept(),)})
    command = without_model(msg, rewrite_by_rules(msg, "en", max_queries=4), "en", "down")
    assert command.evidence == (kept(),)
    assert command.header.degraded == ("rewritten by rules: down",)


@pytest.mark.parametrize(
    ("language", "asked_for", "expected"), [("fr", None, "fr"), ("de", None, "en"), ("de", "de", "de")]
)
def test_the_answers_language_is_spoken_or_asked_for(language: str, asked_for: str | None, expected: str) -> None:
    msg = rewriting("Why?", language=asked_for)
    command = search(msg, rewrite_by_rules(msg, language, max_queries=4), language)
    assert command.header.language == expected


# --- the prompt ----------------------------------------------------------------------------------------------------


def prompt(msg: Rewrite) -> str:
    return json.dumps(conversation(msg, 4), ensure_ascii=False)


def test_the_prompt_never_says_who_asks() -> None:
    principal = Principal(tenant="acme-corp", subject="ada@example.org", roles=("board-member",), region="atlantis")
    msg = rewriting("Why?", history=HISTORY, missing="the depot", header_fields={"principal": principal})
    for secret in ("acme-corp", "ada@example.org", "board-member", "atlantis", msg.header.job_id, msg.header.entry_id):
        assert secret not in prompt(msg)


def test_the_prompt_holds_no_text_of_the_index() -> None:
    msg = rewriting("Why?", missing="the depot").model_copy(update={"evidence": (kept(),)})
    assert "Known already." not in prompt(msg)


def test_the_prompt_holds_turns_question_and_what_is_missing_as_the_users_text() -> None:
    system, user = conversation(rewriting("And {new}?", history=HISTORY, missing="the depot"), 3)
    assert (system["role"], user["role"]) == ("system", "user")
    assert "1 to 3 queries" in system["content"]
    for text in ("NK-T2-310", "310 euros", "And {new}?", "the depot"):
        assert text in user["content"]
        assert text not in system["content"]


def test_only_the_last_turns_are_told_and_long_ones_are_cut() -> None:
    history = tuple(Turn(role="user", content=f"turn-{number} " + "x" * 5_000) for number in range(20))
    user = conversation(rewriting("Why?", history=history), 4)[1]["content"]
    assert "turn-14" in user
    assert "turn-13" not in user
    assert len(user) < 7_000


# --- the handler ---------------------------------------------------------------------------------------------------


@dataclass
class FakeChat:
    """A chat model that says or raises what it is told, and remembers what it was asked."""

    says: str | CairnError
    asked: list[Sequence[Message]] = field(default_factory=list)
    timeouts_s: list[float] = field(default_factory=list)
    name: str = "fake"

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        response_format: Mapping[str, Any] | None = None,
        timeout_s: float,
    ) -> Completion:
        self.asked.append(messages)
        self.timeouts_s.append(timeout_s)
        if isinstance(self.says, CairnError):
            raise self.says
        return Completion(self.says, "stop", prompt_tokens=100, completion_tokens=20, estimated=False)

    async def aclose(self) -> None:
        raise AssertionError("the handler does not own it")


POLICY = RewritingPolicy(max_queries=4, timeout_s=15.0)


async def test_the_models_rewriting_is_searched_and_paid_for() -> None:
    chat = FakeChat(reply("a", "b", route="comparative"))
    command = await rewrite(rewriting("Why?"), chat=chat, policy=POLICY)
    assert (command.route, command.queries) == ("comparative", ("a", "b", "Why?"))
    assert command.header.budget == Budget(model_calls=59, tokens=99_880)
    assert command.header.usage[0].prompt_tokens == 100
    assert command.header.versions == {"rewrite_prompt": PROMPT_VERSION}
    assert command.header.degraded == ()


@pytest.mark.parametrize("failure", [ModelUnavailable("it is down"), Misconfigured("it is down")])
async def test_rules_stand_in_for_a_model_that_fails(failure: CairnError) -> None:
    command = await rewrite(rewriting("How do I return it?"), chat=FakeChat(failure), policy=POLICY)
    assert (command.route, command.queries) == ("procedural", ("How do I return it?",))
    assert command.header.degraded == ("rewritten by rules: it is down",)
    assert command.header.usage == ()


async def test_rules_stand_in_for_a_reply_that_cannot_be_read_but_it_is_paid_for() -> None:
    command = await rewrite(rewriting("Why?"), chat=FakeChat("I'd rather not."), policy=POLICY)
    assert command.queries == ("Why?",)
    assert command.header.degraded
    assert command.header.budget.model_calls == 59


async def test_without_a_model_rules_are_no_degradation() -> None:
    command = await rewrite(rewriting("Why?"), chat=None, policy=POLICY)
    assert (command.queries, command.header.degraded) == (("Why?",), ())


async def test_a_spent_budget_asks_no_model() -> None:
    chat = FakeChat(reply("a"))
    command = await rewrite(
        rewriting("Why?", header_fields={"budget": Budget(model_calls=0)}), chat=chat, policy=POLICY
    )
    assert (command.queries, chat.asked) == (("Why?",), [])


async def test_the_model_gets_no_time_that_later_stages_need() -> None:
    chat = FakeChat(reply("a"))
    policy = RewritingPolicy(timeout_s=300.0, share_of_time=0.25)

    async def rewritten(seconds_left: float) -> Retrieve:
        msg = rewriting("Why?", header_fields={"deadline": time.time() + seconds_left})
        return await rewrite(msg, chat=chat, policy=policy)

    await rewritten(400)
    await rewritten(5_000)
    assert 50 < chat.timeouts_s[0] <= 100
    assert chat.timeouts_s[1] == 300
    late = await rewritten(-1)
    assert len(chat.asked) == 2
    assert late.header.degraded == ("rewritten by rules: no time left",)
