"""The honest ceiling: httpx and asyncio.gather, no retries, no reading beyond json.loads, hardly a decision."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from bench.peers.asked import CALLS_AT_ONCE, AskedQuestion, Side
from services.grader import prompts
from shared.contracts import Passage


@asynccontextmanager
async def opened(base_url: str) -> AsyncIterator[Side]:
    places = asyncio.Semaphore(CALLS_AT_ONCE)
    wanted = {"type": "json_schema", "json_schema": {"name": "grade", "schema": prompts.REPLY_SCHEMA}}

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=CALLS_AT_ONCE), timeout=30) as client:

        async def score(question: str, text: str) -> float:
            shown = Passage(passage_id="p", document_id="d", title="Notes", uri="u", text=text)
            body = {
                "model": "mock",
                "messages": prompts.judging(question, shown, fence="fence"),
                "response_format": wanted,
                "max_tokens": 256,
                "temperature": 0,
            }
            async with places:
                reply = await client.post(f"{base_url}/chat/completions", json=body)
            return float(json.loads(reply.json()["choices"][0]["message"]["content"])["score"])

        async def side(asked: AskedQuestion) -> bool:
            scores = await asyncio.gather(*(score(asked.question, text) for text in asked.passages))
            return max(scores) < 0.7

        yield side
