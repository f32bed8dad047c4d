"""What must not be told: jobs full of marked secrets go through real workers whose endpoints repeat all they are sent.

Promise 11: no secret in logs, metrics, events, outcomes and dead letters; of the question and of passages nothing in
logs and metrics.
"""

from __future__ import annotations

import io
import json
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import jwt
import pytest
import structlog
from prometheus_client import generate_latest
from pydantic import SecretStr
from redis.asyncio import Redis

from services.gateway.settings import JwtSettings
from services.generator.handler import generate
from services.generator.settings import AnsweringPolicy
from services.grader import prompts
from services.grader.handler import grade
from services.grader.settings import GraderSettings
from services.rewriter.handler import rewrite
from services.rewriter.settings import RewritingPolicy
from services.websearch.handler import search_web
from shared.cli.doctor import look_at_web
from shared.clients.chat import open_chat
from shared.clients.judge import open_judge
from shared.clients.web import open_web_search
from shared.contracts import Generate, Grade, Passage, Retrieve
from shared.errors import Misconfigured
from shared.runtime.embedded_redis import redis_url as redis_url_of
from shared.runtime.keys import Keys
from shared.runtime.logs import set_up_logs
from shared.runtime.stage import Stage
from shared.settings import HomeSettings, JudgeSettings, LlmSettings, ObserveSettings, RedisSettings, WebSettings
from tests.support import bus
from tests.support.bus import ask, outcome, running
from tests.support.mock_openai import Answer, MockOpenAI, Request
from tests.support.mock_web_search import Asked, MockWebSearch, Reply
from tests.support.wait import wait_until

API_KEY: Final = "sk-marked-chat-key"
JWT_SECRET: Final = "marked-signing-secret-of-32-bytes"
PROXY_PASSWORD: Final = "marked-proxy-password"
QUESTION: Final = "How long does Quokkamark have to return a tent?"
PRIVATE: Final = ("Quokkamark", "Zebramark")
"""Words of the question, and of a passage."""
TOKEN: Final = jwt.encode({"sub": "ann", "roles": ["staff"], "exp": time.time() + 3600}, JWT_SECRET, algorithm="HS256")
FORGED: Final = jwt.encode({"sub": "ann", "exp": time.time() + 3600}, "b" * 32, algorithm="HS256")
PASSAGE: Final = Passage(
    passage_id="p1",
    document_id="returns.md",
    title="Returns",
    uri="returns.md",
    text="Zebramark may return an unused tent within 45 days. The shop pays the postage.",
    language="en",
    score=0.5,
    similarity=0.9,
)

Logs: TypeAlias = Callable[[], str]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Logs]:
    """Everything that is logged, by us and by libraries, at the level that tells most."""
    written = io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", written)
        set_up_logs(ObserveSettings(log_level="debug", log_format="json"))
    structlog.configure(cache_logger_on_first_use=False)
    yield written.getvalue
    set_up_logs(ObserveSettings(log_level="warning", log_format="json"))
    structlog.configure(cache_logger_on_first_use=False)


def secrets_of(url: str) -> list[str]:
    password = urlsplit(url).password
    return [API_KEY, JWT_SECRET, PROXY_PASSWORD, TOKEN, FORGED, *([password] if password else [])]


async def kept(redis: Redis, keys: Keys) -> str:
    """Everything that Redis holds of these jobs, at their end."""
    texts: list[str] = []
    client: Any = redis
    async for key in client.scan_iter(f"{keys.prefix}*"):
        kind = await client.type(key)
        if kind == b"hash":
            texts.append(str(await client.hgetall(key)))
        elif kind == b"stream":
            texts.append(str(await client.xrange(key)))
    return "\n".join(texts)


def well_behaved(request: Request) -> Answer:
    asked = request["messages"][0]["content"]
    if "prepare searches" in asked:
        return Answer('{"route": "factual", "queries": ["tent return period"]}')
    if request.get("response_format") or "score" in asked:
        return Answer('{"score": 0.9, "verdict": "relevant", "reason": "states the period"}')
    return Answer("You have 45 days [1].")


def fault_list(request: Request) -> Answer:
    """As validating servers refuse: a list of faults, each with its input."""
    fault = {"type": "value_error", "loc": ["body"], "msg": "Value error", "input": request["messages"], "k": API_KEY}
    return Answer(status=422, raw=json.dumps({"detail": [fault]}).encode())


def repeating(status: int) -> Callable[[Request], Answer]:
    return lambda request: Answer.fault(status, f"refused {API_KEY} for {request['messages']}")


def babbling(request: Request) -> Answer:
    """Not what was asked for, and all that was sent."""
    return Answer(f"{API_KEY} {request['messages']}")


async def broken(msg: Generate) -> Generate:
    """A bug whose error quotes what it choked on."""
    raise ValueError(f"can't handle {msg} {TOKEN}")


async def retrieve(msg: Retrieve) -> Grade:
    return Grade(header=msg.header, asked=msg.asked, route=msg.route, queries=msg.queries, passages=(PASSAGE,))


@asynccontextmanager
async def stages(base_url: str, web_url: str, *instead: Callable[..., Any]) -> AsyncIterator[list[Stage]]:
    """All of them, with real clients; only the search in the index is made up."""
    llm = LlmSettings(base_url=base_url, model="mock", api_key=SecretStr(API_KEY))
    chat = open_chat(llm)
    judge = open_judge(JudgeSettings(), llm, None, prompts=prompts)
    web = open_web_search(WebSettings.model_validate({"provider": "searxng", "base_url": web_url}))
    assert chat is not None
    assert web is not None
    ready = {
        stage.name: stage
        for stage in (
            bus.gateway(JwtSettings(secret=SecretStr(JWT_SECRET))),
            bus.stage(rewrite, chat=chat, policy=RewritingPolicy()),
            bus.stage(retrieve),
            bus.stage(grade, judge=judge, policy=GraderSettings().policy),
            bus.stage(search_web, web=web, top_k=5, chat=chat),
            bus.stage(generate, chat=chat, embedder=None, policy=AnsweringPolicy()),
            *(bus.stage(handler) for handler in instead),
        )
    }
    async with AsyncExitStack() as closing:
        for opened in (chat, judge, web):
            closing.push_async_callback(opened.aclose)
        yield list(ready.values())


def repeats_query(asked: Asked) -> Reply:
    return Reply({"error": f"{asked.parameters} {asked.headers}"}, status=500)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param((well_behaved, ()), id="all is well"),
        pytest.param((repeating(401), ()), id="the key is refused"),
        pytest.param((repeating(400), ()), id="the request is refused"),
        pytest.param((repeating(503), ()), id="the endpoint is down"),
        pytest.param((fault_list, ()), id="the request is not valid"),
        pytest.param((babbling, ()), id="the model babbles"),
        pytest.param((well_behaved, (broken,)), id="a bug"),
    ],
)
async def test_nothing_is_told_of_a_job(
    case: tuple[Callable[[Request], Answer], tuple[Callable[..., Any], ...]],
    redis: Redis,
    keys: Keys,
    redis_url: str,
    logs: Logs,
) -> None:
    script, instead = case
    async with MockOpenAI(script=script) as mock, MockWebSearch(repeats_query) as site:
        web_url = site.base_url.replace("http://", f"http://proxy:{PROXY_PASSWORD}@")
        async with stages(mock.base_url, web_url, *instead) as everyone, running(everyone, redis_url, keys):
            await ask(redis, keys, QUESTION, job_id="well", token=TOKEN, deadline_s=20)
            await ask(redis, keys, QUESTION, job_id="outside", token=TOKEN, deadline_s=20, web="only")
            ended = [await wait_until(lambda: outcome(redis, keys, "well"), within_s=25)]
            ended += [await wait_until(lambda: outcome(redis, keys, "outside"), within_s=25)]
        assert mock.headers[0]["authorization"] == f"Bearer {API_KEY}"  # or there would be nothing to tell
    said = logs() + generate_latest().decode()
    assert '"job_id": "well"' in said
    assert "cairn_deliveries_total" in said
    everything = said + await kept(redis, keys)
    assert [secret for secret in secrets_of(redis_url) if secret in everything] == []
    assert [word for word in PRIVATE if word in said] == []
    assert "Zebramark" not in str([each.trail for each in ended])  # a trail never holds a passage's text


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"question": QUESTION, "token": FORGED}, id="forged token"),
        pytest.param({"question": QUESTION, "token": TOKEN[:-9]}, id="cut token"),
        pytest.param({"question": QUESTION, "token": TOKEN, "top_k": TOKEN}, id="wrong type"),
        pytest.param({"question": QUESTION, "tokens": TOKEN}, id="unknown field"),
        pytest.param({"data": f'{{"question": "{QUESTION}", "token": "{TOKEN}",'}, id="half of the JSON"),
        pytest.param({"data": json.dumps({"question": {"text": QUESTION}, "token": [TOKEN]})}, id="wrong JSON"),
    ],
)
async def test_nothing_is_told_of_what_is_refused(
    fields: dict[str, str], redis: Redis, keys: Keys, redis_url: str, logs: Logs
) -> None:
    async with running([bus.gateway(JwtSettings(secret=SecretStr(JWT_SECRET)))], redis_url, keys):
        client: Any = redis
        entry_id = (await client.xadd(keys.inbox("gateway"), fields)).decode()
        refused = await wait_until(lambda: outcome(redis, keys, entry_id))
    assert refused.status == "failed"
    said = logs() + generate_latest().decode()
    assert f'"entry_id": "{entry_id}"' in said
    everything = said + await kept(redis, keys)
    assert [secret for secret in secrets_of(redis_url) if secret in everything] == []
    assert [word for word in PRIVATE if word in everything] == []


async def test_a_broken_worker_does_not_quote_what_broke_it(
    redis: Redis, keys: Keys, redis_url: str, logs: Logs
) -> None:
    async def chore(_: object) -> None:
        await wait_until(lambda: logs().count('"event": "started"'))
        raise ValueError(f"can't handle {QUESTION} {TOKEN}")

    passing = bus.stage(bus.grade)
    async with running([Stage(passing.name, passing.inboxes, chores=[chore])], redis_url, keys):
        await wait_until(lambda: logs().count("the worker is broken"))
    said = logs()
    assert "ValueError at test_secrets.py" in said
    assert TOKEN not in said
    assert "Quokkamark" not in said


@pytest.mark.parametrize(
    "url", ["redis://:pass/marked@redis:6379/0", "redis://:marked@redis:6379/0?db=marked", "marked"]
)
def test_a_redis_url_that_cant_be_read_is_not_quoted(url: str) -> None:
    with pytest.raises(Misconfigured, match="CAIRN_REDIS_URL") as refused:
        redis_url_of(RedisSettings(redis_url=SecretStr(url)), HomeSettings())
    assert "marked" not in "".join(traceback.format_exception(refused.value))


async def test_the_doctor_does_not_tell_the_password_of_an_address() -> None:
    async with MockWebSearch(Reply({"results": []})) as site:
        address = site.base_url.replace("http://", f"http://proxy:{PROXY_PASSWORD}@")
        for each in (address, address.rpartition(":")[0] + ":9"):  # one that answers, one that does not
            told = await look_at_web(WebSettings.model_validate({"provider": "searxng", "base_url": each}))
            assert "127.0.0.1" in told.said
            assert PROXY_PASSWORD not in told.said
        assert site.asked[0].headers["authorization"]
