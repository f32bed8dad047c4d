"""How a judge model's reply is read: a grade, or ungraded with the reason. Never a guess."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clients.chat.replies import message_text, without_reasoning
from shared.clients.judge.replies import read_grade, read_grades, read_score

REAL_REPLIES = Path(__file__).parents[3] / "shared" / "data" / "judge_replies.jsonl"


@pytest.mark.skipif(not REAL_REPLIES.exists(), reason=f"{REAL_REPLIES} with real reply shapes is not on this machine")
def test_real_reply_shapes_are_read_as_expected() -> None:
    replies = [json.loads(line) for line in REAL_REPLIES.read_text("utf-8").splitlines()]
    wrong = [reply["id"] for reply in replies if not _as_expected(reply)]
    assert len(replies) - len(wrong) >= 70, wrong


def _as_expected(reply: dict[str, Any]) -> bool:
    text = reply["raw"] if reply["raw_type"] == "content" else message_text(json.loads(reply["raw"]))
    grade = read_grade(text)
    found = None if grade.score is None else {"score": grade.score, "verdict": grade.relevance}
    return found in reply["accept"] if reply["policy"] == "choice" else found == reply["expected"]


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (0, 0.0), (1, 1.0), (0.35, 0.35), ("0.8", 0.8), ("0,8", 0.8), (" 00.75 ", 0.75), (".5", 0.5),
        ("8/10", 0.8), ("8 / 10", 0.8), ("85%", 0.85), ("85 %", 0.85), ("1e-1", 0.1),
        (True, None), (None, None), ("", None), ("high", None), (85, None), (-0.1, None), (1.01, None), ("120%", None),
        ("9" * 400 + "/" + "9" * 400, None),
        ("11/10", None), ("1/0", None), ("NaN", None), (math.nan, None), (math.inf, None), ("<score>", None),
        ([0.5], None), ("0.8.1", None), ("-0.5", None),
        (10**400, None),
    ],
)  # fmt: skip
def test_score(value: Any, score: float | None) -> None:
    assert read_score(value) == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty"),
        ("<think>still at it", "empty or was cut off"),
        ("No idea.", "no grade"),
        ("Score: 5", "no grade"),
        ('{"score": 7, "verdict": "relevant"}', "no number from 0 to 1"),
        ('{"score": 0.1} or rather {"score": 0.9}', "several grades"),
        ('{"score": 0.1, "score": 0.9}', "no number from 0 to 1"),
        ('{"score": 0.9, "verdict": "irrelevant"}', "contradicts itself"),
        ('{"score": 0.1, "verdict": "relevant"}', "contradicts itself"),
        ('{"verdict": "relevant", "score": 0.', "no grade"),
    ],
)
def test_ungraded_with_the_reason(reply: str, reason: str) -> None:
    grade = read_grade(reply)
    assert (grade.score, grade.relevance) == (None, None)
    assert reason in grade.reason


@pytest.mark.parametrize(
    "reply",
    [
        '{"reason": "It says "fee" here", "score": 0.8}',
        '{"reason": "5" tall", "score": 0.8, "verdict": "relevant"}',
        "{'score': 0.8, 'verdict': 'relevant'}",
        "{score: 0.8, verdict: relevant}",
        '```json\n{"score": 0,8}\n```',
        "**Score: 8/10**, it names the fee.",
        '<think>{"score": 0.1}</think> {"score": 0.8}',
    ],
)
def test_read_although_broken(reply: str) -> None:
    assert read_grade(reply).score == pytest.approx(0.8)


WRAPPINGS = [
    "{}", "```json\n{}\n```", "Sure:\n{}\nAnything else?", "<think>hm {{not this}}</think>\n{}", "[{}]", "{}<|im_end|>",
    '{{"result": {}}}',
]  # fmt: skip


@given(
    score=st.floats(0, 1).map(lambda score: round(score, 3)),
    reason=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60),
    wrapping=st.sampled_from(WRAPPINGS),
)
def test_a_valid_object_is_read_whatever_its_reason_says_and_whatever_it_is_wrapped_in(
    score: float, reason: str, wrapping: str
) -> None:
    grade = read_grade(wrapping.format(json.dumps({"score": score, "reason": reason}, ensure_ascii=False)))
    assert grade.score == score


@given(st.text(max_size=400))
def test_no_text_raises_and_no_score_leaves_the_range(reply: str) -> None:
    grade = read_grade(reply)
    assert grade.score is None or 0 <= grade.score <= 1
    assert grade.score is not None or grade.reason


@given(st.lists(st.sampled_from(["{", "}", '"', "score", ":", ",", "0.", "7", "[", "]", "\\", "<think>", "\n", "e"])))
def test_fragments_of_json_neither(pieces: list[str]) -> None:
    test_no_text_raises_and_no_score_leaves_the_range.hypothesis.inner_test("".join(pieces))  # type: ignore[attr-defined]


@given(st.floats(allow_nan=True, allow_infinity=True).filter(lambda number: not 0 <= number <= 1))
def test_no_number_outside_the_range_becomes_a_score(number: float) -> None:
    assert read_grade(json.dumps({"score": number})).score is None
    assert read_grade(str(number)).score is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("<think>a</think>\n<think>b</think> c", " c"),
        ("<thinking><thinking>a</thinking></thinking>b", "b"),
        ("a</think>b", "b"),
        ("<think>never closed", ""),
        ('{"reason": "the </think> tag"}', '{"reason": "the </think> tag"}'),
        ("Use the <think> tag.", "Use the <think> tag."),
        ("<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b", "b"),
        ("<|channel|>analysis<|message|>a", ""),
    ],
)
def test_reasoning_is_taken_out(text: str, left: str) -> None:
    assert without_reasoning(text) == left


# --- replies to a batch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "scores"),
    [
        ('{"grades": [{"id": 2, "score": 0.2}, {"id": 1, "score": 0.1}]}', [0.1, 0.2]),
        ('[{"id": "1", "score": 0.1}, {"id": " 2 ", "score": "20 %"}]', [0.1, 0.2]),
        ('<think>h</think>So:\n```\n{"grades": [{"id": 1, "score": .1,}, {\'id\': 2, "score": 0.2}]}\n```', [0.1, 0.2]),
        ('{"grades": [{"id": 1, "score": 0.1}]}', [0.1, None]),
        ('{"grades": [{"id": 1, "score": 0.1}, {"id": 1, "score": 0.1}, {"id": 2, "score": 0.2}]}', [None, 0.2]),
        ('{"grades": [{"id": 1, "score": 0.1}, {"id": 3, "score": 0.2}]}', [None, None]),
        ('{"grades": [{"id": 1, "score": 1.5}, {"id": 2, "score": 0.2}]}', [None, 0.2]),
        ('{"grades": [{"score": 0.1}, {"score": 0.2}]}', [None, None]),
        ('{"grades": [{"id": 1, "score": 0.1}, {"id": 2, "score": 0.2', [0.1, None]),  # cut off: perhaps 0.25
        ('{"grades": [{"id": true, "score": 0.1}, {"id": 2, "score": 0.2}]}', [None, None]),
        ("1: 0.1, 2: 0.2", [None, None]),
        ("", [None, None]),
        ("[[[[", [None, None]),
    ],
)  # fmt: skip
def test_in_a_batch_each_number_counts_once_or_not_at_all(reply: str, scores: list[float | None]) -> None:
    grades = read_grades(reply, 2)
    assert [grade.score for grade in grades] == scores
    assert all(grade.reason or grade.score is not None for grade in grades)


@given(st.text(max_size=300) | st.recursive(st.none() | st.floats() | st.integers() | st.text(), st.lists).map(repr))
def test_whatever_a_batch_reply_is_its_grades_are_scores_or_none(text: str) -> None:
    for grade in read_grades(text, 3):
        assert grade.score is None or 0 <= grade.score <= 1
