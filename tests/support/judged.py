"""Jobs for a grader whose true grades are known, and a judge that knows them: each passage's text carries its mark."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from shared.contracts import Grade, Passage
from tests.support import bus
from tests.support.mock_openai import Answer, Request, completion

Kind: TypeAlias = Literal["correct", "ambiguous", "incorrect"]
KINDS: Final[Sequence[Kind]] = ("correct", "ambiguous", "incorrect")
_BEST: Final[dict[Kind, tuple[int, int]]] = {"correct": (75, 100), "ambiguous": (35, 65), "incorrect": (0, 25)}
_MARK: Final = re.compile(r"mark (\S+) = (\d+)")
_FILLING: Final = "Tents, boots and stoves can be brought back to any shop of the chain, with the slip it came with. "

UNREADABLE: Final = (
    "",
    "I can't help with that.",
    '{"reason": "It says',
    '{"score": NaN, "verdict": "relevant"}',
    '{"score": 7, "verdict": "relevant", "reason": "seven of something"}',
    '{"score": 0.1, "reason": "no"} or rather {"score": 0.9, "reason": "yes"}',
    "Score: high",
    "<think>the passage is about",
)


def job(kind: Kind, number: int, rng: random.Random, *, passages: int = 8) -> Grade:
    """A job that a judge who makes no mistakes finds `kind`: its best passages are, the rest are irrelevant."""
    low, high = _BEST[kind]
    best = rng.randint(1, 3)
    scores = [rng.randint(low, high) if n < best else rng.randint(0, 25) for n in range(passages)]
    rng.shuffle(scores)
    return Grade(
        header=bus.header(f"{kind}-{number}"),
        asked=bus.question(),
        route="factual",
        queries=("return a tent",),
        passages=tuple(passage(f"{number}.{n}", score) for n, score in enumerate(scores)),
    )


def passage(name: str, hundredths: int) -> Passage:
    """A passage of about 150 words whose true score is so many hundredths."""
    text = f"{_FILLING * 4}This is mark {name} = {hundredths}. {_FILLING * 4}"
    return Passage(passage_id=name, document_id="d", title="Returns", uri="u", text=text, language="en")


def true_score(shown: Passage) -> float:
    """What a judge who makes no mistakes gives it."""
    found = _MARK.search(shown.text)
    assert found is not None
    return int(found[2]) / 100


def asked_about(request: Request) -> tuple[str, float]:
    """Name and true score of the passage that a request shows."""
    found = _MARK.search(request["messages"][-1]["content"])
    assert found is not None
    return found[1], int(found[2]) / 100


def reply(score: float) -> str:
    """As a well-behaved judge writes it."""
    verdict = "relevant" if score >= 0.7 else "partial" if score >= 0.3 else "irrelevant"
    return json.dumps({"reason": "by its mark", "score": score, "verdict": verdict})


def faultless(request: Request) -> Answer:
    """The judge without a storm."""
    return Answer(reply(asked_about(request)[1]))


READABLE: Final[Sequence[Callable[[float], str]]] = (
    lambda score: f"```json\n{reply(score)}\n```",
    lambda score: f"<think>{{hm}} let me see</think>\n{reply(score)}",
    lambda score: f"Here is my judgement:\n{reply(score)}\nAnything else?",
    lambda score: reply(score)[:-1] + ",}",
    lambda score: f"{{'reason': 'by its mark', 'score': '{round(score * 100)}/100'}}",
    lambda score: f'{{"score": "{round(score * 100)} %", "reason": "by its mark"}}',
    lambda score: f'{{"score": {str(score).replace(".", ",")}, "reason": "by its mark"}}',
    lambda score: f"**Score: {round(score * 100)}/100**",
)


@dataclass(slots=True)
class Storm:
    """A judge in trouble: shares of its calls that end in each way. The same passage meets the same fate each time.

    Malformed replies are readable and unreadable in turn; a late reply comes after `late_s`.
    """

    seed: int
    late_s: float
    busy: float = 0.20
    late: float = 0.10
    malformed: float = 0.10
    cut: float = 0.05
    retry_after_s: float = 0.1
    seen: Counter[str] = field(default_factory=Counter)
    """Calls for each passage."""
    fates: Counter[str] = field(default_factory=Counter)

    def __call__(self, request: Request) -> Answer:
        name, score = asked_about(request)
        self.seen[name] += 1
        rng = random.Random(f"{self.seed} {name} {self.seen[name]}")
        (fate,) = rng.choices(
            ("busy", "late", "malformed", "cut", "fine"),
            (self.busy, self.late, self.malformed, self.cut, 1 - self.busy - self.late - self.malformed - self.cut),
        )
        self.fates[fate] += 1
        if fate == "busy":
            return Answer.fault(429, "slow down", Retry_After=str(self.retry_after_s))
        if fate == "malformed":
            return self._malformed(rng, score)
        return Answer(reply(score), cut=fate == "cut", latency_s=self.late_s if fate == "late" else None)

    def _malformed(self, rng: random.Random, score: float) -> Answer:
        if rng.random() < 0.5:
            return Answer(rng.choice(READABLE)(score))
        if rng.random() < 0.2:
            return Answer(raw=rng.choice((b'{"choices": []}', b"<html>gateway</html>", b"")))
        text = rng.choice(UNREADABLE)
        return Answer(raw=json.dumps(completion(text, finish_reason=rng.choice(("stop", "length")))).encode())
