"""The checks of an answer: words, numbers, dates and names, and how the model's own check is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generator import prompts
from services.generator.checking import Check, Flaw, claims_in, flaws, read_check, supported, weigh
from services.generator.decision import Written
from services.generator.reading import read_reply
from shared.clients.chat import estimated_tokens
from tests.unit.test_generator import SHIPPING, TENTS, evidence


def found(answer: str, passage: str, language: str = "en", spoken: str = "", question: str = "How?") -> list[str]:
    source = evidence(passage, language=spoken or language)
    return [flaw.why for flaw in flaws(claims_in(answer, language), [source], question, language)]


@pytest.mark.parametrize(
    ("answer", "passage", "language", "spoken"),
    [
        ("It costs 1,000 euros [1].", "The price: it costs 1 000 euros.", "en", "en"),
        ("It costs 1000.5 euros [1].", "It costs 1.000,5 euros.", "en", "en"),
        ("It costs 1 000,50 euros [1].", "It costs 1,000.5 euros.", "en", "en"),
        ("It costs 6.90 [1].", "Le prix est de 6,90 €.", "en", "fr"),
        ("It was on 3 May 2024 [1].", "It was on 2024-05-03 in the evening.", "en", "en"),
        ("It was on 2024-05-03 [1].", "It was on May 3, 2024.", "en", "en"),
        ("Le 5 mars 2024, la tente [1].", "La tente, le 05/03/2024.", "fr", "fr"),
        ("Палатку можно вернуть 3 мая 2024 года [1].", "Tents return on 3 May 2024.", "ru", "en"),
        ("Take 3 of them along [1].", "Take three of them along.", "en", "en"),
        ("Both 45, 60 days count [1].", "Both count: 45 days, or 60 days.", "en", "en"),
        ("In the market 5 tents are sold [1].", "In the market 5 tents are sold.", "en", "en"),
        ("1. Dry the tent [1].\n2. Fold the tent [1].", "Dry the tent, then fold the tent.", "en", "en"),
        ("Tents (sold 1933–1953) were heavy, and Aley – Baabda too [1].",) * 2 + ("en", "en"),
        ("Order NK-T2-310 with the poles [1].", "Order poles with NK-T2-310.", "en", "en"),
        ("Ask Norway's office about tents [1].", "Tents: ask the office of Norway.", "en", "en"),
        ("Die Zelte kann der Kunde im Laden geben [1].", "Der Kunde kann im Laden die Zelte geben.", "de", "de"),
        ("# Returns\nTents are returned so:\n```\npip install zebra==9\n```", "Tents.", "en", "en"),
        ("Палатки принимают обратно [1].", "Tents can be returned.", "ru", "en"),
    ],
)
def test_what_the_passage_says_in_another_way_holds(answer: str, passage: str, language: str, spoken: str) -> None:
    assert found(answer, passage, language, spoken) == []


@pytest.mark.parametrize(
    ("answer", "passage", "why"),
    [
        ("It costs 7 euros [1].", "It costs 6 euros.", "7 is not"),
        ("It costs 1,000 euros [1].", "It costs 100 euros.", "1,000 is not"),
        ("It was on 4 June 2024 [1].", "It was on 4 May 2024.", "6 is not"),
        ("It was on 2024-06-04 [1].", "It was on 4 May 2024.", "06 is not"),
        ("Order NK-T2-999 with the poles [1].", "Order poles with NK-T2-310.", "t2-999 is not"),
        ("Ask Mallory about tents [1].", "Ask the office about tents.", "Mallory is not"),
        ("Bananas are wonderful yellow fruits [1].", TENTS, "says something else"),
        ("Bananas are wonderful yellow fruits. Tents: 45 days [1].", TENTS, "cites no passage"),
    ],
)
def test_what_the_passage_does_not_say_is_found(answer: str, passage: str, why: str) -> None:
    assert any(why in each for each in found(answer, passage)), found(answer, passage)


def test_what_the_question_names_may_be_repeated() -> None:
    assert found("For 3 tents of Mallory: 45 days [1].", TENTS, question="Has Mallory's party of 3 tents to pay?") == []
    assert found("Палаток 99 [1].", TENTS, "ru", "en") == ["99 is not in what it cites"]
    assert found("Палатки принимают. Их сушат [1].", TENTS, "ru", "en") == ["it cites no passage"]


@given(number=st.integers(0, 10**7), cents=st.integers(1, 99))
def test_a_number_holds_however_it_is_written(number: int, cents: int) -> None:
    english = f"{number:,}.{cents:02}"
    french = english.replace(",", "\u202f").replace(".", ",")
    german = english.replace(",", "_").replace(".", ",").replace("_", ".")
    for mine in (english, french, german):
        for theirs in (english, french, german):
            assert not [why for why in found(f"Tents: {mine} euros [1].", f"Tents: {theirs} euros.") if mine in why]
        if number >= 1000:
            assert found(f"Tents: {mine} euros [1].", f"Tents: {number + 1} euros.")


# --- the model's check -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "check"),
    [
        ('{"grounded": 0.9, "answers": 1, "unsupported": [], "missing": ""}', Check(0.9, 1.0)),
        ('Sure:\n```json\n{"grounded": 1, "answers": 1, "unsupported": []}\n```\nDone.', Check(1.0, 1.0)),
        ('{"grounded": "50 %", "answers": "0,8", "unsupported": ["S2"], "missing": " a \\n b "}',
         Check(0.5, 0.8, frozenset({1}), "a b")),
        ('{"grounded": 0.5, "answers": 0.8, "unsupported": 2, "missing": null}', Check(0.5, 0.8, frozenset({1}))),
        ('{"grounded": 0.5, "answers": 0.8, "unsupported": null}', Check(0.5, 0.8)),
        ('{"grounded": 0.5, "answers": 0.8, "unsupported": [1', Check(0.5, 0.8, frozenset({0}))),
        ("", None),
        ("I can't check that.", None),
        ("[0.9, 0.9]", None),
        ('{"grounded": 0.9}', None),
        ('{"grounded": 7, "answers": 1, "unsupported": []}', None),
        ('{"grounded": true, "answers": true, "unsupported": []}', None),
        ('{"grounded": 0.5, "answers": 1, "unsupported": [3]}', None),
        ('{"grounded": 0.5, "answers": 1, "unsupported": [0]}', None),
        ('{"grounded": 1, "answers": 1, "unsupported": [1, 2]}', None),
        ('{"grounded": 0, "answers": 1, "unsupported": []}', None),
        ("{" * 20_000, None),
    ],
)  # fmt: skip
def test_a_check_is_read_or_left(reply: str, check: Check | None) -> None:
    assert read_check(reply, 2) == check


@given(st.text(max_size=200), st.integers(0, 3))
def test_any_reply_to_a_check_is_read_or_left(reply: str, claims: int) -> None:
    for each in (reply, "{" + reply, '{"grounded": 1, "answers": ' + reply):
        check = read_check(each, claims)
        assert check is None or (0 <= check.grounded <= 1 and check.unsupported <= set(range(claims)))


def test_a_model_is_believed_about_words_but_not_about_numbers() -> None:
    claims = ["Tents come back [1].", "It costs 99 [1]."]
    words, number = Flaw(0, "what it cites says something else"), Flaw(1, "99 is not there", sure=True)
    alone = weigh(claims, [words, number], None, enough=0.5)
    assert alone.unsupported == {0, 1}
    assert "99 is not there" in alone.finding
    assert weigh(claims, [words, number], Check(1.0, 1.0), enough=0.5).unsupported == {1}
    assert weigh(claims, [words], Check(1.0, 1.0), enough=0.5).finding == ""
    assert weigh(claims, [], Check(0.6, 0.5, frozenset({0})), enough=0.5).unsupported == {0}
    off = weigh(claims, [], Check(1.0, 0.2, missing="the price"), enough=0.5)
    assert (off.partly_usable, off.missing, "the price" in off.finding, off.trust) == (False, "the price", True, 0.2)
    assert not weigh(claims, [], Check(0.2, 1.0), enough=0.5).partly_usable


def test_what_lacks_support_is_left_out_and_the_rest_is_numbered_anew() -> None:
    shown = prompts.fit([evidence(), evidence(SHIPPING, 0.5, "p2")], 3000, estimated_tokens)
    answer = "Tents fly [1]. A parcel costs 6.90 euros [2].\n- Boots sing [1]."
    written = read_reply(answer, "stop", shown, "en")
    assert isinstance(written, Written)
    claims = claims_in(written.answer, "en")
    left = supported(written, claims, {0, 2}, "en")
    assert left is not None
    assert (left.answer, [each.passage_id for each in left.citations]) == ("A parcel costs 6.90 euros [1].", ["p2"])
    assert left.degraded == ("sentences without support left out: 2 of 3",)
    assert supported(written, claims, {0, 1, 2}, "en") is None
