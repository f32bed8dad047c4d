"""The single questions in a question of several, and what a later one leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.language import detect_language
from shared.parts import parts_of, standing_alone


@pytest.mark.parametrize(
    ("question", "language", "count"),
    [
        ("How long is a click and collect order kept?", "en", 1),
        ("How long is the warranty, and who pays the postage?", "en", 2),
        ("Who pays the postage and how long is the warranty?", "en", 2),
        ("How much are the boots, how many times can they be resoled and how long do they dry?", "en", 3),
        ("Opening hours Annecy; warranty period poles; tent weight kg; boot size chart", "en", 4),
        ("If the tent is faulty, how long does the refund take?", "en", 1),
        ("When I return a tent, how many days do I have?", "en", 1),
        ("Hello, how much is it?", "en", 1),
        ("Do you repair boots, bags and tents?", "en", 1),
        ("Quel est le délai de retour ? Combien coûte la livraison express ?", "fr", 2),
        ("Rachetez-vous des skis d'occasion, et à quel prix ?", "fr", 2),
        ("Сколько стоит доставка посылки и когда придёт заказ?", "ru", 2),
        ("Какой максимальный вес и до скольки открыт склад?", "ru", 2),
        ("Я хочу знать, какая скидка у студентов", "ru", 1),
    ],
)
def test_parts(question: str, language: str, count: int) -> None:
    found = parts_of(question, language)
    assert len(found) == count
    assert count > 1 or found == [question]


@pytest.mark.parametrize(
    ("question", "later"),
    [
        # a code, a name, or else the words of the first part
        ("What does it cost to rent NK-T2-310, and what does the same tent cost new?", "NK-T2-310"),
        ("For which season is the Arve 3 made, and how heavy is it?", "Arve 3"),
        ("Quelle est la température du Lagopède et combien coûte le même à louer ?", "Lagopède"),
        ("Combien pèse la tente Lärche 2, et combien coûte-t-elle neuve ?", "Lärche 2"),
        ("Чем обрабатывать швы палатки Lärche 2 и сколько она стоит новая?", "Lärche 2"),
        ("How heavy is the blue tent, and what does it cost?", "blue tent"),
    ],
)
def test_a_part_that_leans_on_the_first_gets_what_it_is_about(question: str, later: str) -> None:
    language = detect_language(question)
    parts = parts_of(question, language)
    first, second = standing_alone(parts, language)
    assert first == parts[0]
    assert second.startswith(parts[1])
    assert second.endswith(later)


@pytest.mark.parametrize(
    "question",
    [
        "What does NK-T2-310 cost, and what does NK-T3-420 cost?",
        "How long is the warranty on Arve 3, and who pays the return postage?",
    ],
)
def test_a_part_that_stands_alone_stays_as_it_is(question: str) -> None:
    parts = parts_of(question, "en")
    assert standing_alone(parts, "en") == parts


@given(st.text(alphabet=st.sampled_from("aA1-?;,. ïи\n"), max_size=60) | st.text(max_size=60))
def test_any_text_has_parts(text: str) -> None:
    parts = parts_of(text, "en")
    assert parts
    assert all(part in text for part in parts)
    assert len(standing_alone(parts, "en")) == len(parts)
