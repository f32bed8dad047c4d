"""The embeddings endpoint: what is sent, what is made of the reply, and how failures are sorted."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from shared.clients.embedder import clean
from shared.clients.embeddings import HttpEmbedder, open_embedder
from shared.errors import EmbedderUnavailable, InvalidModelReply, Misconfigured
from shared.settings import EmbedSettings

Answer = Callable[[httpx.Request], httpx.Response]


def embedder(answer: Answer, **changes: Any) -> HttpEmbedder:
    settings = EmbedSettings.model_validate({"base_url": "http://embed.test/v1", "model": "m"} | changes)
    return HttpEmbedder(settings, transport=httpx.MockTransport(answer))


def lengths(request: httpx.Request) -> httpx.Response:
    """Embeds each text as (its length, 1), last text first."""
    texts = json.loads(request.content)["input"]
    rows = [{"index": number, "embedding": [float(len(text)), 1.0]} for number, text in enumerate(texts)]
    return httpx.Response(200, json={"data": rows[::-1]})


def replying(status: int, **options: Any) -> Answer:
    return lambda request: httpx.Response(status, **options)


async def test_texts_go_out_in_batches_with_prefix_and_key_and_come_back_in_order() -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return lengths(request)

    http = embedder(answer, api_key=SecretStr("s3cret"), batch_size=2, passage_prefix="passage: ", query_prefix="q: ")
    assert http.dimension is None
    vectors = await http.embed_passages(["a", "bb", "c\x00cc"])
    assert vectors.tolist() == [[10.0, 1.0], [11.0, 1.0], [12.0, 1.0]]
    assert vectors.dtype == np.float32
    assert http.dimension == 2
    assert [json.loads(request.content) for request in sent] == [
        {"model": "m", "input": ["passage: a", "passage: bb"], "encoding_format": "float"},
        {"model": "m", "input": ["passage: ccc"], "encoding_format": "float"},
    ]
    assert {(request.method, str(request.url), request.headers["Authorization"]) for request in sent} == {
        ("POST", "http://embed.test/v1/embeddings", "Bearer s3cret")
    }
    assert (await http.embed_questions(["a"])).tolist() == [[4.0, 1.0]]
    assert (await http.embed_questions([])).shape == (0, 0)
    await http.aclose()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_a_refusal_for_now_is_transient(status: int) -> None:
    http = embedder(replying(status, headers={"Retry-After": "7"}, text="busy"))
    with pytest.raises(EmbedderUnavailable, match=f"{status}: busy") as caught:
        await http.embed_questions(["a"])
    assert caught.value.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("status", "setting"),
    [
        (401, "CAIRN_EMBED_API_KEY"),
        (403, "CAIRN_EMBED_API_KEY"),
        (404, "CAIRN_EMBED_BASE_URL"),
        (400, "CAIRN_EMBED_MODEL"),
        (413, "CAIRN_EMBED_BATCH_SIZE"),
        (308, "CAIRN_EMBED_BASE_URL"),
    ],
)
async def test_a_refusal_for_good_names_the_setting(status: int, setting: str) -> None:
    with pytest.raises(Misconfigured, match=setting):
        await embedder(replying(status)).embed_questions(["a"])


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ReadTimeout(""), httpx.RemoteProtocolError("cut")]
)
async def test_no_answer_is_transient(error: Exception) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(EmbedderUnavailable, match=r"can't be reached|did not answer") as caught:
        await embedder(answer).embed_questions(["a"])
    assert caught.value.__cause__ is error


async def test_an_endpoint_that_keeps_failing_is_left_alone_for_a_while() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(503)

    http = embedder(answer)
    for _ in range(20):
        with pytest.raises(EmbedderUnavailable):
            await http.embed_questions(["a"])
    assert len(asked) < 10
    await http.aclose()


async def test_a_real_refused_connection_is_transient() -> None:
    http = HttpEmbedder(EmbedSettings(base_url="http://127.0.0.1:1/v1"))
    with pytest.raises(EmbedderUnavailable):
        await http.embed_questions(["a"])
    await http.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        b"<html>",
        b"[]",
        b'{"data": 3}',
        b'{"data": []}',
        b'{"data": [{"index": 0, "embedding": [1.0, NaN]}]}',
        b'{"data": [{"index": 0, "embedding": ["a"]}]}',
        b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": 1.0}]}',
        b'{"data": [{"index": 1, "embedding": [1.0]}]}',
        b'{"data": [{"embedding": [1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]}',
    ],
)
async def test_a_reply_that_is_no_vector_is_refused(reply: bytes) -> None:
    with pytest.raises(InvalidModelReply):
        await embedder(replying(200, content=reply)).embed_questions(["a"])


async def test_a_changed_vector_size_is_refused() -> None:
    sizes = iter([2, 3])

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": [1.0] * next(sizes)}]})

    http = embedder(answer)
    await http.embed_questions(["a"])
    with pytest.raises(InvalidModelReply, match="from 2 to 3"):
        await http.embed_questions(["a"])


def test_the_fingerprint_names_model_and_prefixes_and_the_place_of_a_nameless_model() -> None:
    def fingerprint(**changes: Any) -> str:
        return embedder(lengths, **changes).fingerprint

    assert fingerprint() == fingerprint(base_url="http://elsewhere.test/v1", api_key="k")
    different = [
        fingerprint(),
        fingerprint(model="n"),
        fingerprint(query_prefix="q: "),
        fingerprint(passage_prefix="q: "),
    ]
    assert len(set(different)) == 4
    assert fingerprint(model="default", base_url="http://user:pw@embed.test:81/v1") == "http:default@embed.test"


@pytest.mark.parametrize("url", ["ftp://x/v1", "http://host:port/v1"])
async def test_an_address_that_is_none_is_explained(url: str) -> None:
    with pytest.raises(Misconfigured, match="CAIRN_EMBED_BASE_URL"):
        await HttpEmbedder(EmbedSettings(base_url=url)).embed_questions(["a"])


def test_without_the_embedded_model_words_alone_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with capture_logs() as logs:
        assert open_embedder(EmbedSettings(base_url=None), tmp_path) is None
    assert logs[0]["event"] == "no embedder: lexical search alone is used"


def test_what_engines_choke_on_is_cleaned_away() -> None:
    assert clean("a\x00b\ud800c") == "abc"
