"""The re-ranking client: whose replies it reads, and how it sorts what goes wrong."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clients.rerank import HttpReranker, open_reranker, read_scores
from shared.errors import CairnError, InvalidModelReply, Misconfigured, RerankerUnavailable
from shared.settings import RerankSettings


def reranker(reply: httpx.Response, asked: list[Any] | None = None) -> HttpReranker:
    def answer(request: httpx.Request) -> httpx.Response:
        if asked is not None:
            asked.append((str(request.url), json.loads(request.content), request.headers.get("authorization")))
        return reply

    settings = RerankSettings.model_validate(
        {"base_url": "http://rank.test/v1", "api_key": "sk-secret", "model": "m", "timeout_s": 1.0}
    )
    return HttpReranker(settings, client=httpx.AsyncClient(transport=httpx.MockTransport(answer)))


COHERE = {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}]}
JINA = {
    "model": "m",
    "results": [{"index": 1, "relevance_score": 0.9, "document": {"text": "b"}}, COHERE["results"][1]],
}
VOYAGE = {"object": "list", "data": COHERE["results"]}
TEI = [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.2}]


@pytest.mark.parametrize("reply", [COHERE, JINA, VOYAGE, TEI])
async def test_replies_of_the_known_servers_are_read(reply: Any) -> None:
    asked: list[Any] = []
    scores = await reranker(httpx.Response(200, json=reply), asked).rerank("q", ["a", "b"], timeout_s=5.0)
    assert scores == [0.2, 0.9]
    [(url, body, key)] = asked
    assert (url, key) == ("http://rank.test/v1/rerank", "Bearer sk-secret")
    assert (body["model"], body["query"], body["documents"], body["top_n"]) == ("m", "q", ["a", "b"], 2)


@pytest.mark.parametrize(
    ("reply", "error", "told"),
    [
        (httpx.Response(200, json={"results": [{"index": 0, "relevance_score": 1.0}]}), InvalidModelReply, "each of 2"),
        (httpx.Response(200, json={"results": [{"index": 0}, {"index": 1}]}), InvalidModelReply, "relevance_score"),
        (httpx.Response(200, json={"answer": 42}), InvalidModelReply, "no list"),
        (httpx.Response(200, text="<html>"), InvalidModelReply, "JSON"),
        (httpx.Response(404, json={"error": "no such model"}), Misconfigured, "CAIRN_RERANK"),
        (httpx.Response(401), Misconfigured, "CAIRN_RERANK_API_KEY"),
        (httpx.Response(503), RerankerUnavailable, "rank.test"),
    ],
)
async def test_what_goes_wrong_is_sorted(reply: httpx.Response, error: type[CairnError], told: str) -> None:
    with pytest.raises(error, match=told) as caught:
        await reranker(reply).rerank("q", ["a", "b"], timeout_s=5.0)
    assert "sk-secret" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["results", "data", "index", "score", "relevance_score", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(json_values, st.integers(1, 3))
def test_any_reply_gives_one_score_each_or_the_typed_error(reply: Any, count: int) -> None:
    try:
        scores = read_scores(reply, count)
    except InvalidModelReply:
        return
    assert len(scores) == count


def test_without_an_address_there_is_none() -> None:
    assert open_reranker(RerankSettings()) is None
