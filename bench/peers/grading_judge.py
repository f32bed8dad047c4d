"""The mock judge's answers, for `tests.support.mock_openai --script`."""

from __future__ import annotations

from bench.peers.asked import judged
from tests.support.mock_openai import Answer, Request


def answer(request: Request) -> Answer:
    return Answer(judged(request))
