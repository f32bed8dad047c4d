"""Mutated replies: nothing but the typed error is raised, no score leaves [0, 1], and none takes long to read.

Each run tries 1,500 new mutations of real replies; CAIRN_TEST_FUZZ_REPLIES=100000 tries as many. The seed is printed.
"""

from __future__ import annotations

import json
import os
import random
import string
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from shared.clients.chat import read_completion
from shared.clients.judge.replies import read_grade
from shared.errors import InvalidModelReply

REAL_REPLIES: Final = Path(__file__).parents[3] / "shared" / "data" / "judge_replies.jsonl"
REPLIES: Final = int(os.environ.get("CAIRN_TEST_FUZZ_REPLIES", "1500"))
SLOW_S: Final = 0.5
"""CPU time of reading one reply: a worker's other jobs wait meanwhile."""
ASKED: Final = [{"role": "user", "content": "How well does the passage answer the question?"}]

OWN_SEEDS: Final = [
    '{"reason": "names the period", "score": 0.8, "verdict": "relevant"}',
    '```json\n{"score": 0,8, "verdict": "partial",}\n```',
    "<think>hm {no}</think>{'score': '8/10', 'reason': 'it \"says\" so'}",
    "**Score: 85 %**, the passage states it.",
    '<|channel|>analysis<|message|>well<|end|><|channel|>final<|message|>{"score": 1}',
    '{"result": {"grade": "{\\"score\\": 0.25, \\"verdict\\": \\"irrelevant\\"}"}} // done',
    '[{"relevance_score": 1e-1, "reason": "сорок пять дней", "verdict": "not relevant"',
    "0,35",
    '{"content": [{"type": "text", "text": "{\\"score\\": 0.5}"}], "reasoning_content": "so so"}',
    '{"content": null, "tool_calls": [{"function": {"name": "grade", "arguments": "{\\"score\\": 0.9}"}}]}',
    '{"content": "", "refusal": "I can\'t judge that."}',
]
FRAGMENTS: Final = [
    "{", "}", "[", "]", '"', "'", "\\", ":", ",", "//", "/*", "`" * 3, "<think>", "</think>", "<|im_end|>", "\0", "\n",
    "null", "true", "NaN", "Infinity", "-0", "1e999", "9" * 400, "0." + "3" * 400, "0,5", "7/0", "3 / 4", "101 %", "½",
    '"score":', '"score": 2', '"verdict": "relevant"', "score", "\u202e", "\ufeff", "٣", "\U0001f600", "\ud800",
    "\\ud800", "\\u0000", "e", "+", "(",
]  # fmt: skip
ODD_VALUES: Final[list[Any]] = [
    None, True, -1, 10**400, 1e308, float("nan"), float("inf"), "", "0.8", "\ud800", [], [[]], {}, {"score": 0.1},
    {"text": 7}, ["x", None, {"text": "{"}],
]  # fmt: skip


def seeds() -> list[str]:
    """Contents and whole messages as models wrote them, and our own."""
    if not REAL_REPLIES.exists():
        warnings.warn(f"{REAL_REPLIES} with real replies is not on this machine: own seeds only", stacklevel=2)
        return OWN_SEEDS
    return [*OWN_SEEDS, *(json.loads(line)["raw"] for line in REAL_REPLIES.read_text("utf-8").splitlines())]


def _span(rng: random.Random, text: str) -> tuple[int, int]:
    start = rng.randint(0, len(text))
    return start, min(len(text), start + rng.choice((1, 1, 2, 5, 20, 100)))


def flip(rng: random.Random, text: str, _: list[str]) -> str:
    """Some bits of the bytes; what is then no UTF-8 any more comes as an HTTP client would show it."""
    flipped = bytearray(text.encode("utf-8", "surrogatepass"))
    for _n in range(rng.randint(1, 4) if flipped else 0):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return flipped.decode("utf-8", "replace")


def delete(rng: random.Random, text: str, _: list[str]) -> str:
    start, end = _span(rng, text)
    return text[:start] + text[end:]


def duplicate(rng: random.Random, text: str, _: list[str]) -> str:
    start, end = _span(rng, text)
    return text[:start] + text[start:end] * rng.choice((2, 2, 3, 50)) + text[end:]


def swap(rng: random.Random, text: str, _: list[str]) -> str:
    a, b = sorted(_span(rng, text)[0] for _n in range(2))
    return text[b:] + text[a:b] + text[:a]


def truncate(rng: random.Random, text: str, _: list[str]) -> str:
    return text[: rng.randint(0, len(text))]


def nest(rng: random.Random, text: str, _: list[str]) -> str:
    left, right = rng.choice((("{", "}"), ("[", "]"), ('{"result": ', "}"), ("<think>", "</think>"), ('"', '"')))
    depth = rng.choice((1, 2, 5, 40, 2_000))
    return left * depth + text + right * rng.choice((depth, depth, depth - 1, 0))


def insert(rng: random.Random, text: str, _: list[str]) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice(FRAGMENTS) * rng.choice((1, 1, 1, 3, 300)) + text[place:]


def renumber(rng: random.Random, text: str, _: list[str]) -> str:
    digits = [place for place, character in enumerate(text) if character.isdigit()]
    if not digits:
        return text
    place = rng.choice(digits)
    number = rng.choice(("9" * rng.choice((1, 5, 400)), "-", "0.", ".", "1e5", "0x1", "1_0", "²", "٣", "1/0"))
    return text[:place] + number + text[place + 1 :]


def splice(rng: random.Random, text: str, everything: list[str]) -> str:
    other = rng.choice(everything)
    return text[: rng.randint(0, len(text))] + other[rng.randint(0, len(other)) :]


def scatter(rng: random.Random, text: str, _: list[str]) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + "".join(rng.choices(string.printable + "éжß中", k=rng.randint(1, 30))) + text[place:]


MUTATIONS: Final[list[Callable[[random.Random, str, list[str]], str]]] = [
    flip, delete, duplicate, swap, truncate, nest, insert, insert, renumber, renumber, splice, scatter,
]  # fmt: skip


def mutated(rng: random.Random, everything: list[str]) -> str:
    """A reply, changed once to four times."""
    text = rng.choice(everything)
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        text = rng.choice(MUTATIONS)(rng, text, everything)[:40_000]
    return text


def disturbed(rng: random.Random, value: Any) -> Any:
    """Decoded JSON with one value, some way down, gone or replaced by another sort."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(ODD_VALUES)
    place: Any = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    changed = value.copy()
    if isinstance(changed, dict) and rng.random() < 0.1:
        del changed[place]
    else:
        changed[place] = disturbed(rng, value[place])
    return changed


def body_with(rng: random.Random, text: str) -> Any:
    """A reply as the endpoint's JSON: `text` as its content, or as the message if it is one."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    whole = message if isinstance(message, dict) and "content" in message else {"role": "assistant", "content": text}
    usage = rng.choice([{"prompt_tokens": 9, "completion_tokens": 3}, None, {"prompt_tokens": -1}, [7]])
    choice = {"index": 0, "message": whole, "finish_reason": rng.choice(["stop", "length", None, 7])}
    return {"id": "m", "choices": [choice], "usage": usage}


def read_safely(text: str) -> None:
    """The grade of a reply: in range, and if there is none, with a reason; it goes into messages as JSON."""
    grade = read_grade(text)
    assert grade.score is None or 0 <= grade.score <= 1
    assert grade.score is not None or grade.reason
    assert grade.model_dump_json()


def try_one(rng: random.Random, everything: list[str]) -> tuple[Any, Exception | None]:
    """One mutated reply by both ways in, and what was raised that should not be."""
    text = mutated(rng, everything)
    body = body_with(rng, text)
    if rng.random() < 0.5:
        body = disturbed(rng, body)
    try:
        read_safely(text)
        try:
            read_safely(read_completion(body, ASKED).text)
        except InvalidModelReply as error:
            assert str(error)
    except Exception as error:  # noqa: BLE001  the point of the test: whatever it is, its input is shown
        return (text, body), error
    return (text, body), None


@pytest.mark.timeout(900)
def test_mutated_replies_raise_nothing_and_no_score_leaves_the_range() -> None:
    seed, everything = random.randrange(2**32), seeds()
    rng = random.Random(seed)
    wrong: dict[str, str] = {}
    for _ in range(REPLIES):
        started = time.thread_time()
        given, error = try_one(rng, everything)
        if error is None and time.thread_time() - started > SLOW_S:
            error = TimeoutError(f"took more than {SLOW_S} s of CPU")
        if error is not None:
            told, shown = f"{type(error).__name__}: {str(error)[:60]}", repr(given)
            wrong[told] = min(wrong.get(told, shown), shown, key=len)
    assert not wrong, f"seed {seed}\n" + "\n".join(f"{told}\n    {shown:.2000}" for told, shown in wrong.items())
