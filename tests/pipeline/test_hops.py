"""Several hops on real streams: real rewriter and grader, a scripted model over HTTP, a search of two passages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from services.grader import prompts
from services.grader.handler import grade
from services.grader.settings import GraderSettings
from services.rewriter.decision import NOTHING_NEW
from services.rewriter.handler import rewrite
from services.rewriter.settings import RewritingPolicy
from shared.citations import citations_of
from shared.clients.chat import open_chat
from shared.clients.judge import open_judge
from shared.contracts import Answered, Generate, Grade, Passage, Retrieve, TrailPassage, TrailStep
from shared.runtime.keys import Keys
from shared.settings import JudgeSettings, LlmSettings
from tests.support import bus
from tests.support.bus import ask, outcome, residue, running
from tests.support.mock_openai import Answer, MockOpenAI, Request
from tests.support.wait import wait_until

QUESTION = "Where was the director of Lagaan born?"
TEXTS = {
    "film": "Lagaan is a film that Ashutosh Gowariker directed.",
    "director": "Ashutosh Gowariker was born in Kolhapur.",
}


async def retrieve(msg: Retrieve) -> Grade:
    """Finds the director by his name alone."""
    name = "director" if any("Gowariker" in query for query in msg.queries) else "film"
    found = Passage(passage_id=name, document_id=name, title=name, uri=name, text=TEXTS[name], language="en", score=1.0)
    step = TrailStep(
        hop=msg.header.hop,
        route=msg.route,
        queries=msg.queries,
        passages=(TrailPassage(passage_id=name, origin="index", score=1.0),),
    )
    return Grade(
        header=msg.header.updated(step=step),
        asked=msg.asked,
        route=msg.route,
        queries=msg.queries,
        passages=(found,),
        evidence=msg.evidence,
    )


async def generate(msg: Generate) -> Answered:
    """Cites all there is."""
    return Answered.ending(
        msg.header, "citations", now=time.time(), verdict=msg.verdict, citations=citations_of(msg.evidence)
    )


def model(plan: Callable[[str], str]) -> Callable[[Request], Answer]:
    """A judge that takes the film for half of the answer, and a planner: what it is told, and its second query."""

    def answer(request: Request) -> Answer:
        system, user = (each["content"] for each in request["messages"])
        if "You prepare searches" not in system:
            return Answer(json.dumps({"reason": "…", "score": 0.9 if "Kolhapur" in user else 0.5}))
        if "still missing" in system:
            return Answer(f"Let me see. {json.dumps({'intent': 'factual', 'queries': [plan(user)]})}")
        return Answer(json.dumps({"intent": "factual", "queries": ["Lagaan director"], "clarification": None}))

    return answer


async def asked_of(plan: Callable[[str], str], redis: Redis, keys: Keys, redis_url: str, *, max_hops: int) -> Answered:
    async with MockOpenAI(script=model(plan)) as mock:
        llm = LlmSettings(base_url=mock.base_url, model="mock")
        chat, judge = open_chat(llm), open_judge(JudgeSettings(), llm, None, prompts=prompts)
        assert chat is not None
        stages = [
            bus.gateway(),
            bus.stage(rewrite, chat=chat, policy=RewritingPolicy()),
            bus.stage(retrieve),
            bus.stage(grade, judge=judge, policy=GraderSettings().policy),
            bus.stage(generate),
        ]
        async with running(stages, redis_url, keys):
            job_id = await ask(redis, keys, QUESTION, max_hops=max_hops, web="off", deadline_s=30)
            found = await wait_until(lambda: outcome(redis, keys, job_id), within_s=35)
        await judge.aclose()
        await chat.aclose()
    assert await residue(redis, keys) == {}
    return found


async def test_a_second_hop_finds_what_the_first_one_names(redis: Redis, keys: Keys, redis_url: str) -> None:
    def plan(told: str) -> str:
        assert TEXTS["film"] in told
        assert "Lagaan director" in told
        return "Ashutosh Gowariker birthplace"

    found = await asked_of(plan, redis, keys, redis_url, max_hops=2)
    assert (found.verdict, found.hops, found.degraded) == ("correct", 2, ())
    assert {each.passage_id for each in found.citations} == {"film", "director"}
    assert [(step.hop, step.queries, step.verdict) for step in found.trail] == [
        (0, (QUESTION, "Lagaan director"), "ambiguous"),
        (1, ("Ashutosh Gowariker birthplace",), "correct"),
    ]
    assert [timing.stage for timing in found.timings] == [
        "gateway", *2 * ("rewriter", "retriever", "grader"), "generator",
    ]  # fmt: skip
    assert sum(each.calls for each in found.usage if each.stage == "rewriter") == 2


async def test_a_planner_that_repeats_itself_is_ended(redis: Redis, keys: Keys, redis_url: str) -> None:
    found = await asked_of(lambda told: "LAGAAN  director?", redis, keys, redis_url, max_hops=3)
    assert (found.verdict, found.hops, found.degraded) == ("ambiguous", 2, (NOTHING_NEW,))
    assert [each.passage_id for each in found.citations] == ["film"]
    assert [step.reason for step in found.trail][1:] == [NOTHING_NEW]


@pytest.mark.parametrize("max_hops", [1, 2, 3])
async def test_hops_are_bounded(max_hops: int, redis: Redis, keys: Keys, redis_url: str) -> None:
    numbers = iter(range(9))
    found = await asked_of(lambda told: f"Lagaan {next(numbers)}", redis, keys, redis_url, max_hops=max_hops)
    assert (found.verdict, found.hops, len(found.trail)) == ("ambiguous", max_hops, max_hops)
    assert [each.passage_id for each in found.citations] == ["film"]
