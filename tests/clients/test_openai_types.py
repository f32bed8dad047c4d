"""What is sent and read, held against the types of the openai package: somebody else's reading of the same API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter

from services.grader import prompts
from shared.clients.chat import ReplySchema, read_completion
from shared.clients.chat.streaming import StreamedReply
from tests.clients.test_chat import ASK, chatting
from tests.support.mock_openai import MockOpenAI, chunk, completion

SCHEMA = ReplySchema("grade", prompts.REPLY_SCHEMA)


@pytest.mark.parametrize("schema", [None, SCHEMA])
async def test_requests_are_what_the_openai_client_would_send(schema: ReplySchema | None) -> None:
    async with MockOpenAI() as mock, chatting(mock) as chat:
        await chat.complete(ASK, max_tokens=16, schema=schema, timeout_s=5)
        await chat.complete(ASK, max_tokens=16, schema=schema, timeout_s=5, said=lambda _: None)
    plain, streamed = mock.requests
    for kind, request in ((CompletionCreateParamsNonStreaming, plain), (CompletionCreateParamsStreaming, streamed)):
        known: Any = TypeAdapter(kind).validate_python(request)
        assert set(request) <= set(kind.__annotations__), kind
        assert known["model"] == "m-1"


def test_replies_of_the_openai_types_are_read() -> None:
    reply = ChatCompletion.model_validate({**completion("Yes [1]."), "created": 1, "model": "m-1"})
    said = read_completion(json.loads(reply.model_dump_json()), ASK)
    assert (said.text, said.finish_reason, said.prompt_tokens) == ("Yes [1].", "stop", 100)


def test_chunks_of_the_openai_types_are_heard() -> None:
    heard: list[str] = []
    hearer = StreamedReply(heard.append)
    for piece in (chunk("Yes "), chunk("[1]."), chunk("", finish_reason="length")):
        parsed = ChatCompletionChunk.model_validate({**piece, "created": 1, "model": "m-1"})
        hearer.hear(json.loads(parsed.model_dump_json()))
    hearer.end()
    assert heard == ["Yes ", "Yes [1]."]
    assert read_completion(hearer.reply, ASK).finish_reason == "length"
