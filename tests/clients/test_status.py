"""What is told of a refusal: the server's reason, and nothing of what it repeats."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from shared.clients.status import Endpoint, sort_status

BODY = {
    "model": "qwen3:8b-instruct",
    "response_format": {"type": "json_schema"},
    "messages": [{"role": "user", "content": 'How long does "Quokkamark" have\nto return a tent?'}],
}
ASKED = httpx.Request("POST", "http://llm/v1/chat/completions", json=BODY)
SEARCHED = httpx.Request("GET", "http://searx/search?q=how+long+does+Quokkamark+have&format=json")


def told(request: httpx.Request, message: Any, status: int = 422) -> str:
    endpoint = Endpoint("http://llm/v1", "CAIRN_LLM")
    return str(sort_status(endpoint, status, json.dumps({"detail": message}), request=request))


@pytest.mark.parametrize(
    ("request_sent", "message"),
    [
        (ASKED, [{"msg": "Value error", "input": BODY["messages"]}]),
        (ASKED, f"can't use {json.dumps(BODY['messages'])}"),
        (ASKED, 'How long does "Quokkamark" have'),
        (SEARCHED, "nothing for how long does Quokkamark have"),
    ],
)
def test_what_was_sent_is_not_told(request_sent: httpx.Request, message: Any) -> None:
    said = told(request_sent, message)
    assert "Quokkamark" not in said
    assert said.startswith("llm answered 422: ")
    assert "…" in said


@pytest.mark.parametrize(
    "message",
    [
        "The model `qwen3:8b-instruct` does not exist",
        "Unrecognized request argument supplied: response_format",
        "This model's maximum context length is 4096 tokens",
    ],
)
def test_the_reason_is_told(message: str) -> None:
    assert message in told(ASKED, message, status=400)
