"""What the rules search for a question."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rewriter.decision import MAX_QUERY_CHARS, by_rules, next_command
from services.rewriter.rules import is_small_talk, language_of, parts, route_of
from services.rewriter.settings import RewritingPolicy
from shared.contracts import Generate, Retrieve, Rewrite, Route, Turn
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
    return by_rules(msg, language_of(msg.asked), RewritingPolicy(max_queries=max_queries)).queries


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
    found = by_rules(rewriting("How do I return it?", missing="the address of the depot"), "en", RewritingPolicy())
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
def test_every_question_with_words_gets_a_search(text: str, missing: str | None, max_queries: int) -> None:
    msg = rewriting(text, missing=missing, history=HISTORY)
    language = language_of(msg.asked)
    found = by_rules(msg, language, RewritingPolicy(max_queries=max_queries))
    command = next_command(msg, found, language)
    if isinstance(command, Generate):
        assert command.small_talk or not any(character.isalnum() for character in text)
        return
    assert 1 <= len(command.queries) <= max_queries
    assert all(query.strip() for query in command.queries)
    assert Retrieve.model_validate_json(command.model_dump_json()) == command


# --- what is not searched --------------------------------------------------------------------------------------------

SMALL_TALK = """
Hi | hello! | Hey there | Good morning :) | Hi all, how are you? | Thanks | thank you very much! | THANK YOU
Great, thanks a lot! | ok thanks | Thanks for your help! | Bye! | see you later
Bonjour | Bonjour, ça va ? | Merci beaucoup ! | Merci d’avance | Parfait, merci | Au revoir, bonne journée
Привет! | Здравствуйте | Добрый день! | Большое спасибо | Спасибо большое! | Как дела? | До свидания | Пока!
"""
NO_SMALL_TALK = """
Hi, how do I return a tent? | Thanks for the fish: who wrote it? | What does hello mean? | Is there a bye week?
History | Good morning yoga price | thank you page | ok | Yes | Help | returns? | What is Hello Kitty? | hi-fi
Bonjour Tristesse | Merci de me donner le prix | Salut, combien ? | Combien pour la bonne soirée ?
Привет, сколько стоит? | Как дела у палатки NK-1? | Пока действует акция? | Спасибо, а возврат? | Где всем спасибо?
... | 👋 | +++
"""


def listed(table: str) -> list[str]:
    return [text.strip() for line in table.strip().splitlines() for text in line.split("|")]


@pytest.mark.parametrize("text", listed(SMALL_TALK))
def test_greetings_and_thanks_are_small_talk(text: str) -> None:
    assert is_small_talk(text)


@pytest.mark.parametrize("text", listed(NO_SMALL_TALK))
def test_a_question_is_no_small_talk(text: str) -> None:
    assert not is_small_talk(text)


def test_no_question_of_the_tables_above_is_small_talk() -> None:
    assert [text for text, *_ in ROUTES if is_small_talk(text)] == []


def test_a_greeting_asked_to_be_searched_is_searched() -> None:
    msg = rewriting("Bonjour")
    assert by_rules(msg, "fr", RewritingPolicy(small_talk=False)).queries == ("Bonjour",)


@pytest.mark.parametrize(
    ("text", "fields", "asked_back"),
    [
        ("???", {}, "What exactly would you like to know?"),
        ("👋", {"language": "fr"}, "Que souhaitez-vous savoir exactement ?"),
        ("…", {"history": (Turn(role="user", content="Сколько стоит палатка?"),)}, "Что именно вы хотите узнать?"),
        ("?", {"language": "de"}, "What exactly would you like to know?"),
    ],
)
def test_a_question_without_words_is_asked_back(text: str, fields: dict[str, Any], asked_back: str) -> None:
    msg = rewriting(text, **fields)
    assert by_rules(msg, language_of(msg.asked), RewritingPolicy()).clarification == asked_back


@pytest.mark.parametrize("text", ["42", "NK-T2", "C++", "Hm", "帐篷", "?х?"])
def test_whatever_has_a_word_or_number_is_searched(text: str) -> None:
    assert queries(rewriting(text)) == (text,)


def test_a_later_hop_is_never_small_talk_or_unclear() -> None:
    for text in ("???", "Thanks"):
        found = by_rules(rewriting(text, missing="the depot", header_fields={"hop": 1}), "en", RewritingPolicy())
        assert (found.queries, found.is_settled) == (("the depot", text), False)
