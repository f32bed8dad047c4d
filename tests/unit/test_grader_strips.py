"""Refinement: what is left of a passage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from services.grader.strips import refine, strips
from shared.contracts import Passage

QUESTION = "How many days do I have to return a tent?"
LONG = (
    "Our shop was founded in 1987 by two climbers. It has three floors. The cafe is on the second floor. "
    "Parking is free for two hours.\n\n"
    "A tent may be sent back for a return within 45 days. Keep the receipt. It must be dry. Poles count as parts.\n\n"
    "The staff speak four languages. Dogs are welcome. The lift is being repaired. The roof was painted green."
)


def passage(text: str, language: str = "en") -> Passage:
    return Passage(passage_id="p", document_id="d", title="t", uri="u", text=text, language=language)


def test_strips_without_the_question_are_dropped() -> None:
    kept = refine(QUESTION, "en", passage(LONG))
    assert any("45 days" in strip for strip in kept)
    assert "The roof was painted green." not in " ".join(kept)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("One. Two are here now. Three are here now.", "en"),  # short
        (LONG, "fr"),  # another language than the question
    ],
)
def test_short_and_foreign_passages_stay_whole(text: str, language: str) -> None:
    assert refine(QUESTION, "en", passage(text, language)) == (text,)


def test_where_no_strip_has_words_of_the_question_all_are_kept() -> None:
    assert refine("Wozu?", "en", passage(LONG)) == tuple(strips(LONG, "en"))


def test_tables_and_code_are_not_cut() -> None:
    table = "| size | days |\n| --- | --- |\n| small. Very. Small. | 30 |"
    code = "```\nreturn_days = 45. Or. More.\n\nexit\n```"
    found = strips(f"A first sentence here.\n\n{table}\n\n{code}\nAfterwards there is more.", "en")
    assert found == ["A first sentence here.", table, code, "Afterwards there is more."]


@given(some.text(alphabet="ab. \n|`#é9\r\t", max_size=200))
def test_every_strip_stands_in_the_passage_in_order(text: str) -> None:
    position = 0
    for strip in strips(text, "en"):
        found = text.find(strip, position)
        assert strip
        assert found >= 0
        position = found + len(strip)


def test_an_empty_passage_has_no_strips() -> None:
    assert refine(QUESTION, "en", passage("  ")) == ()
