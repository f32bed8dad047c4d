"""Markers: read leniently, written strictly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.generator.markers import (
    cited_sentences,
    markers_in,
    settle,
    whole_beginning,
    whole_sentences,
    without_markers,
)

CASES = [
    # as written, as settled, the writer's numbers
    ("Five days [1].", "Five days [1].", (1,)),
    ("Five days.[1]", "Five days.[1]", (1,)),
    ("Five days [ 2 ].", "Five days [1].", (2,)),
    ("Five days [1, 2].", "Five days [1][2].", (1, 2)),
    ("Five days [1,2;3].", "Five days [1][2][3].", (1, 2, 3)),
    ("Five days [1][2].", "Five days [1][2].", (1, 2)),
    ("Five days [2][1].", "Five days [1][2].", (2, 1)),
    ("Five days 【1】.", "Five days [1].", (1,)),
    ("Five days 【3†Shipping】.", "Five days [1].", (3,)),
    ("Five days [1-3].", "Five days [1][2][3].", (1, 2, 3)),
    ("Five days [2–3].", "Five days [1][2].", (2, 3)),
    ("Five days [3-1].", "Five days.", ()),
    ("Five days [1-999999999].", "Five days [1][2][3].", (1, 2, 3)),
    ("Five days [^1].", "Five days [1].", (1,)),
    ("Five days [^1, ^3].", "Five days [1][2].", (1, 3)),
    ("Five days [source 1].", "Five days [1].", (1,)),
    ("Five days [Passage 2].", "Five days [1].", (2,)),
    ("Пять дней [источник 2].", "Пять дней [1].", (2,)),
    ("Five days [1](https://example.org/x).", "Five days [1].", (1,)),
    ("Five days (1).", "Five days (1).", ()),
    ("Five days {1}.", "Five days {1}.", ()),
    ("Five days [one].", "Five days [one].", ()),
    ("Five days [1a].", "Five days [1a].", ()),
    ("Five days [].", "Five days [].", ()),
    ("Five days [9].", "Five days.", ()),
    ("Five days [0].", "Five days.", ()),
    ("Five days [9] or six [1].", "Five days or six [1].", (1,)),
    ("Five days [1, 9].", "Five days [1].", (1,)),
    ("Since [2024] five days [1].", "Since five days [1].", (1,)),
    ("In 2024 (2024) five days [1].", "In 2024 (2024) five days [1].", (1,)),
    ("A [3]. B [1]. C [3].", "A [1]. B [2]. C [1].", (3, 1)),
    ("A [1] [1].", "A [1].", (1,)),
    ("A [1][1, 2].", "A [1][2].", (1, 2)),
    ("Call `row[2]` first [1].", "Call `row[2]` first [1].", (1,)),
    ("Call ``a[9] ` b`` first [2].", "Call ``a[9] ` b`` first [1].", (2,)),
    ("```\nrow[7]\n```\nDone [2].", "```\nrow[7]\n```\nDone [1].", (2,)),
    ("~~~py\nrow[7]\n~~~\nDone [2].", "~~~py\nrow[7]\n~~~\nDone [1].", (2,)),
    ("Done [2].\n```\nrow[1]", "Done [1].\n```\nrow[1]", (2,)),
    ("A [1]. B [", "A [1]. B", (1,)),
    ("A [1]. B [2", "A [1]. B", (1,)),
    ("A [1]. B [1, ", "A [1]. B", (1,)),
    ("A [1]. B 【2†Ship", "A [1]. B", (1,)),
    ("A [1]. B [^", "A [1]. B", (1,)),
    ("A [[9]1].", "A [1].", (1,)),
    ("", "", ()),
]


@pytest.mark.parametrize(("written", "settled", "used"), CASES)
def test_settle(written: str, settled: str, used: tuple[int, ...]) -> None:
    assert (settle(written, 3).text, settle(written, 3).used) == (settled, used)


PIECES = st.lists(
    st.sampled_from(
        [
            "[1]",
            "[2, 9]",
            "[1-4]",
            "【3】",
            "[^2]",
            "[",
            "]",
            "`",
            "``",
            "\n```\n",
            "~~~",
            " ",
            ". ",
            "\n",
            "7",
            "a",
            "†",
            "я",
            "(1)",
        ]
    ),
    max_size=24,
).map("".join)


@settings(deadline=None)
@given(text=st.one_of(PIECES, st.text(max_size=80)), known=st.integers(0, 5))
def test_settled_markers_are_exactly_those_used(text: str, known: int) -> None:
    settled = settle(text, known)
    assert list(dict.fromkeys(markers_in(settled.text))) == list(range(1, len(settled.used) + 1))
    assert all(1 <= number <= known for number in settled.used)
    assert len(set(settled.used)) == len(settled.used)


@settings(deadline=None)
@given(text=PIECES, known=st.integers(0, 5))
def test_settling_twice_changes_nothing(text: str, known: int) -> None:
    once = settle(text, known)
    assert settle(once.text, len(once.used)).text == once.text


@settings(deadline=None)
@given(text=st.one_of(PIECES, st.text(max_size=80)))
def test_sentences_stand_in_the_text(text: str) -> None:
    assert all(sentence in text for sentence in whole_sentences(text, "en"))


def test_markers_after_the_stop_belong_to_the_sentence_before() -> None:
    text = "It costs 4.50 €. [1] It takes 3 days [2]. Nothing else."
    assert cited_sentences(text, "en") == {1: ["It costs 4.50 €."], 2: ["It takes 3 days."]}


def test_without_markers_keeps_the_rest() -> None:
    assert without_markers("Five days [1], 【2】 or `a[1]` six.") == "Five days, or `a[1]` six."


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ("It costs 5 € [1]. It takes 3 d", "It costs 5 € [1]."),
        ("It costs 5 € [1]. It takes 3.", "It costs 5 € [1]."),
        ("It costs 5 € [1]. It takes 3 days [2].", "It costs 5 € [1]. It takes 3 days [2]."),
        ("It costs 5 €. [1]", "It costs 5 €. [1]"),
        ("It costs", ""),
        ("", ""),
    ],
)
def test_a_cut_text_keeps_whole_sentences(cut: str, whole: str) -> None:
    assert whole_beginning(cut, "en") == whole
