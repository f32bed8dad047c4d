"""Which language, where sentences end, which words carry meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.language import SPOKEN, detect_language, sentences, terms
from shared.overlap import coverage, distinct_terms, shared_pairs, weight


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Why?", "en"),
        ("Is Redis required?", "en"),
        ("refund policy", "en"),
        ("Pourquoi ?", "fr"),
        ("politique de remboursement", "fr"),
        ("Combien coûte la livraison ?", "fr"),
        ("Сколько?", "ru"),
        ("Какой пароль у Wi-Fi?", "ru"),
        ("12345", "en"),
        ("", "en"),
    ],
)
def test_detection(text: str, language: str) -> None:
    assert detect_language(text) == language


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("en", "One is enough. Two! Three?", ["One is enough.", "Two!", "Three?"]),
        ("en", "A line that\nwraps here. Next.", ["A line that\nwraps here.", "Next."]),
        ("en", "# Title\nText.\n- one\n- two", ["# Title", "Text.", "- one", "- two"]),
        ("en", "| a | b |\n|---|---|\n| 1 | 2 |\nAfter.", ["| a | b |", "|---|---|", "| 1 | 2 |", "After."]),
        ("en", "Steps:\n1. go\n2. stay", ["Steps:", "1. go", "2. stay"]),
        ("en", "It costs $5.00 today. Buy.", ["It costs $5.00 today.", "Buy."]),
        ("fr", "M. Dupont est là. Il part.", ["M. Dupont est là.", "Il part."]),
        ("ru", "Он родился в 1990 г. в Москве. Живёт там.", ["Он родился в 1990 г. в Москве.", "Живёт там."]),
        ("xx", "Hello there world. Next one is here.", ["Hello there world.", "Next one is here."]),
        ("en", " \n ", []),
    ],
)
def test_sentences(language: str, text: str, found: list[str]) -> None:
    assert sentences(text, language) == found


@given(text=st.text(max_size=300), language=st.sampled_from([*SPOKEN, "und"]))
def test_sentences_stand_word_for_word_in_the_text_in_their_order(text: str, language: str) -> None:
    position = 0
    for sentence in sentences(text, language):
        position = text.index(sentence, position) + len(sentence)


@given(text=st.text(max_size=300), language=st.sampled_from([*SPOKEN, "und"]))
def test_no_letter_gets_lost_between_sentences(text: str, language: str) -> None:
    joined = "".join("".join(sentences(text, language)).split())
    assert joined == "".join(text.split())


def test_forms_of_a_word_are_one_term() -> None:
    assert terms("returned tents", "en") == terms("the return of a tent", "en")
    assert terms("палатки возвращали", "ru")[0] == terms("палатку", "ru")[0]


def test_coverage_counts_rare_looking_words_more() -> None:
    wanted = distinct_terms("warranty of the NK-T2-310", "en")
    code = set(terms("the NK-T2-310", "en"))
    assert coverage(wanted, code) > coverage(wanted, set(terms("a warranty", "en")))
    assert (coverage(wanted, set(wanted)), coverage(wanted, set()), coverage((), code)) == (1.0, 0.0, 0.0)


def test_pairs() -> None:
    assert shared_pairs(["a", "b", "c"], ["x", "b", "c"]) == 0.5
    assert shared_pairs(["a"], ["a"]) == 0.0


@given(st.text(min_size=1, max_size=40))
def test_weight_is_bounded(term: str) -> None:
    assert 0 < weight(term) <= 1.5
