"""What every side of the grading comparison shares: questions, how a side is timed, and what the judge answers.

Each passage carries a mark, so that the judge gives everybody the same grade; it answers in the form it is asked for.
Nothing beyond the standard library is needed, as the peers don't have Cairn's environment.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

QUESTIONS: Final = 24
PASSAGES: Final = 8
AT_ONCE: Final = 8
"""Questions in hand while the rate is taken."""
CALLS_AT_ONCE: Final = 16
"""Judge calls in flight, for sides that can make several."""
YES_FROM: Final = 0.3
"""Score from which the judge says yes, to those who ask for yes or no: not overly strict, as the peers' prompts say."""

_KINDS: Final[Mapping[str, tuple[float, ...]]] = {
    "all good": (0.9, 0.8, 0.95, 0.75, 0.85, 0.9, 0.8, 0.75),
    "some good": (0.9, 0.1, 0.4, 0.05, 0.8, 0.2, 0.1, 0.15),
    "half good": (0.5, 0.2, 0.4, 0.1, 0.6, 0.2, 0.1, 0.05),
    "none good": (0.1, 0.2, 0.05, 0.1, 0.15, 0.2, 0.1, 0.05),
}
_MARK: Final = re.compile(r"\(mark (0\.\d+)\)")
_SENTENCES: Final = (
    "An unused tent can be brought back to any shop of the chain.",
    "The slip from the till has to come with it, or the card that paid for it.",
    "Boots are measured on both feet, with the socks that will be worn in them.",
    "Gas bottles stay in the yard behind the shop and are never sent by post.",
    "The workshop in the old station mends poles, zips and stoves on weekdays.",
    "Whoever rents a kayak leaves a deposit and gets it back when it is dry.",
    "Ropes are taken out of use after five years, whatever they look like.",
    "In winter the shop in the valley opens an hour later than the one in town.",
)


@dataclass(frozen=True)
class AskedQuestion:
    """A question and what retrieval found for it."""

    question: str
    passages: tuple[str, ...]


Side: TypeAlias = Callable[[AskedQuestion], Awaitable[bool]]
"""Grades the passages of a question and goes on as that side does; answers whether the web was searched."""


def questions() -> list[AskedQuestion]:
    """The same for everybody; passages of about 100 words, in no order."""
    rng = random.Random(7)
    asked = []
    for number in range(QUESTIONS):
        scores = list(_KINDS[list(_KINDS)[number % len(_KINDS)]])
        rng.shuffle(scores)
        texts = (f"Note {number}.{n} (mark {score}). {_words(rng)}" for n, score in enumerate(scores))
        asked.append(AskedQuestion(f"How long can tent number {number} be returned?", tuple(texts)))
    return asked


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(_SENTENCES, k=7))


def judged(request: Mapping[str, Any]) -> str:
    """What the judge says to a chat request, in the form that was asked for."""
    marks = _MARK.findall("\n".join(str(message["content"]) for message in request["messages"]))
    if len(marks) != 1:
        raise ValueError(f"a request about {len(marks)} passages")
    score = float(marks[0])
    word = "yes" if score >= YES_FROM else "no"
    wanted = json.dumps(request.get("response_format") or {})
    if "binary_score" in wanted:
        return json.dumps({"binary_score": word})
    if '"score"' in wanted:
        verdict = "relevant" if score >= 0.7 else "partial" if score >= 0.3 else "irrelevant"
        return json.dumps({"reason": "by its mark", "score": score, "verdict": verdict})
    return word


def calls_served(base_url: str) -> int:
    """Calls the mock judge has answered so far."""
    with urllib.request.urlopen(f"{base_url}/served") as answer:
        return int(answer.read())


@dataclass(frozen=True)
class Measured:
    """One pass over the questions."""

    seconds: list[float]
    """Of each question, one after the other."""
    jobs_per_s: float
    """With several questions in hand."""
    calls: float
    """Judge calls a question."""
    searches: float
    """Web searches a question."""


async def measured(side: Side, base_url: str) -> Measured:
    """Each question by itself, then all of them, several in hand."""
    asked = questions()
    await side(asked[0])  # opens the connections
    before, seconds, searches = calls_served(base_url), [], 0
    for each in asked:
        started = time.perf_counter()
        searches += await side(each)
        seconds.append(time.perf_counter() - started)
    calls = calls_served(base_url) - before
    places = asyncio.Semaphore(AT_ONCE)

    async def one(each: AskedQuestion) -> None:
        async with places:
            await side(each)

    started = time.perf_counter()
    await asyncio.gather(*map(one, asked))
    rate = len(asked) / (time.perf_counter() - started)
    return Measured(seconds, rate, calls / len(asked), searches / len(asked))
