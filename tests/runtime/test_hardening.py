"""Cases that a reviewer broke the runtime with, each kept as a test."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from pydantic import BaseModel
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError

from services.gateway.settings import JwtSettings
from shared.contracts import Evidence, Generate, Grade, Passage, PassageGrade, Retrieve
from shared.runtime.connection import connect
from shared.runtime.keys import Keys
from shared.runtime.steps import Steps
from shared.runtime.subscriber import end_tasks
from tests.runtime.test_failures import dead_letters
from tests.support import bus
from tests.support.bus import FAST, ask, outcome, pipeline, residue, running, terminals
from tests.support.wait import wait_until


@pytest.mark.parametrize("job_id", ["v:events", "1700000000000-0"])
async def test_an_id_that_could_be_anothers_key_is_refused(
    job_id: str, redis: Redis, keys: Keys, redis_url: str
) -> None:
    async with running(pipeline(), redis_url, keys):
        entry_id: Any = await redis.xadd(keys.inbox("gateway"), {"question": "why?", "job_id": job_id})
        refused = await wait_until(lambda: outcome(redis, keys, entry_id.decode()))
    assert refused.status == "failed"
    assert "job_id" in refused.error


async def test_a_broken_job_does_not_keep_the_reaper_from_the_others(redis: Redis, keys: Keys, redis_url: str) -> None:
    """Keys of the wrong type, a hash without a place, a place that no stage has."""
    await redis.set(keys.job("wrong-type"), "x", ex=60)
    await redis.hset(keys.job("nowhere"), mapping={"status": "running", "tenant": "public"})
    await redis.hset(keys.job("elsewhere"), mapping={"status": "running", "at": f"{keys.inbox('newstage')} 1-0"})
    await redis.zadd(keys.deadlines, {"wrong-type": 1, "nowhere": 2, "elsewhere": 3})
    async with running([bus.gateway()], redis_url, keys):
        await ask(redis, keys, job_id="late", deadline_s=0.2)
        for job_id in ("nowhere", "elsewhere", "late"):
            ended = await wait_until(lambda job_id=job_id: outcome(redis, keys, job_id), within_s=5)  # type: ignore[misc]
            assert ended.status == "timed_out"


async def test_a_verifier_that_is_away_does_not_hold_a_question_for_ever(
    redis: Redis, keys: Keys, redis_url: str
) -> None:
    nobody = JwtSettings(jwks_url="http://127.0.0.1:9/jwks")
    token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.e30.c2ln"
    async with running([bus.gateway(nobody)], redis_url, keys):
        await ask(redis, keys, job_id="j", deadline_s=1, token=token)
        ended = await wait_until(lambda: outcome(redis, keys, "j"), within_s=6)
    assert ended.status == "failed"
    assert "JWKS" in ended.error
    assert await residue(redis, keys) == {}


async def test_a_poisoned_id_is_buried(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        await redis.xadd(keys.inbox("grader"), {"data": '{"header":{"job_id":"\\ud800"}}'})
        (letter,) = await wait_until(lambda: dead_letters(redis, keys))
    assert letter["reason"] == "invalid"
    assert await residue(redis, keys) == {}


async def test_an_errors_text_that_cant_be_encoded_still_ends_the_job(redis: Redis, keys: Keys, redis_url: str) -> None:
    async def grade(msg: Grade) -> Generate:
        from shared.errors import InvalidModelReply

        raise InvalidModelReply("half a pair: \ud800")

    async with running(pipeline(grade), redis_url, keys):
        await ask(redis, keys, job_id="j")
        ended = await wait_until(lambda: outcome(redis, keys, "j"))
    assert ended.status == "failed"
    assert "half a pair" in ended.error


async def test_text_that_cant_be_encoded_fails_its_caller_alone(redis: Redis, keys: Keys) -> None:
    steps = Steps(redis, keys, FAST, consumer="c")
    good = asyncio.create_task(steps.bury("grader", "grader", "1-0", dead_letter="fine"))
    with pytest.raises(UnicodeEncodeError):
        await steps.bury("grader", "grader", "1-0", dead_letter="\ud800")
    assert await asyncio.wait_for(good, 5) == "fenced"


async def test_a_message_too_big_to_publish_fails_the_job_at_once(redis: Redis, keys: Keys, redis_url: str) -> None:
    text = "x" * 1_200_000

    async def retrieve(msg: Retrieve) -> Grade:
        passage = Passage(passage_id="p", document_id="d", title="t", uri="u", text=text)
        evidence = (Evidence(passage=passage, grade=PassageGrade(), strips=()),)
        found = await bus.retrieve(msg)
        return found.model_copy(update={"evidence": evidence})

    async with running(pipeline(retrieve), redis_url, keys):
        started = time.monotonic()
        await ask(redis, keys, job_id="j", deadline_s=30)
        ended = await wait_until(lambda: outcome(redis, keys, "j"))
        assert time.monotonic() - started < 5
    assert ended.status == "failed"
    assert "CAIRN_MAX_MESSAGE_BYTES" in ended.error
    (letter,) = await dead_letters(redis, keys)
    assert letter["whole"]  # the message that came in is kept, and can be sent again


async def test_what_a_bug_choked_on_is_in_no_outcome_and_no_dead_letter(
    redis: Redis, keys: Keys, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Strict(BaseModel):
        number: int

    async def grade(msg: Grade) -> Generate:
        Strict.model_validate({"number": msg.asked.question})
        return await bus.grade(msg)

    async with running(pipeline(grade), redis_url, keys):
        await ask(redis, keys, "my number is 123-45-6789", job_id="j")
        ended = await wait_until(lambda: outcome(redis, keys, "j"), within_s=20)
    (letter,) = await dead_letters(redis, keys)
    assert "ValidationError" in ended.error
    for said in (ended.error, letter["error"], capsys.readouterr().err):
        assert "123-45" not in said


async def test_tokens_are_taken_out_of_dead_letters(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        await redis.xadd(keys.inbox("grader"), {"question": "why?", "token": "secret.jwt.one"})
        await redis.xadd(keys.inbox("grader"), {"data": json.dumps({"question": "why?", "token": "secret.jwt.two"})})
        await wait_until(lambda: _two_letters(redis, keys))
    assert "secret" not in json.dumps(await dead_letters(redis, keys))


async def _two_letters(redis: Redis, keys: Keys) -> bool:
    return len(await dead_letters(redis, keys)) == 2


async def test_a_long_name_of_a_field_is_not_repeated(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        entry_id: Any = await redis.xadd(keys.inbox("gateway"), {"x" * 900_000: "1", "question": "why?"})
        refused = await wait_until(lambda: outcome(redis, keys, entry_id.decode()))
    assert len(refused.error) < 500


async def test_an_entry_id_from_the_future_does_not_put_off_the_deadline(
    redis: Redis, keys: Keys, redis_url: str
) -> None:
    async with running([bus.gateway()], redis_url, keys):
        await redis.xadd(
            keys.inbox("gateway"), {"question": "why?", "job_id": "j", "deadline_s": "0.3"}, id="9999999999999-0"
        )
        ended = await wait_until(lambda: outcome(redis, keys, "j"), within_s=5)
    assert ended.status == "timed_out"


async def test_a_zombies_late_failure_changes_nothing(redis: Redis, keys: Keys, redis_url: str) -> None:
    """Its delivery is another worker's by now, who has not finished yet."""
    started, go_on = asyncio.Event(), asyncio.Event()

    async def grade(msg: Grade) -> Generate:
        started.set()
        await go_on.wait()
        return await bus.grade(msg)

    async with running(pipeline(grade), redis_url, keys) as workers:
        await ask(redis, keys, job_id="j")
        await asyncio.wait_for(started.wait(), 5)
        (entry_id,) = workers[3].subscribers[0].in_hand
        zombie = Steps(redis, keys, FAST, consumer="zombie")
        fate = await zombie.finish(
            "grader", "grader", entry_id, job_id="j", tenant="public", status="failed", outcome="{}"
        )
        assert fate == "fenced"
        go_on.set()
        ended = await wait_until(lambda: outcome(redis, keys, "j"))
    assert ended.status == "answered"
    assert len(await terminals(redis, keys, "j")) == 1


async def test_a_running_job_outlives_the_ttl_of_ended_ones(redis: Redis, keys: Keys, redis_url: str) -> None:
    """A weekend without workers must not lose it: only ended jobs expire."""
    short = FAST.model_copy(update={"job_ttl_s": 1.0})
    async with running([bus.gateway()], redis_url, keys, short):
        await ask(redis, keys, job_id="j", deadline_s=60)
        await wait_until(lambda: redis.exists(keys.job("j")))
    assert await redis.ttl(keys.job("j")) == -1


async def test_a_cancel_that_is_swallowed_is_repeated() -> None:
    """As `asyncio.wait_for` of Python 3.11 does when its result came in the same tick."""
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed > 1:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(end_tasks([task]), 5)
    assert swallowed == 2


async def test_dead_consumers_are_removed_only_when_they_hold_nothing(redis: Redis, keys: Keys) -> None:
    stream = keys.inbox("grader")
    await redis.xgroup_create(stream, "grader", id="0", mkstream=True)
    await redis.xadd(stream, {"data": "{}"})
    await redis.xreadgroup("grader", "holds-one", {stream: ">"}, count=1)
    await redis.xgroup_createconsumer(stream, "grader", "holds-none")
    impatient = FAST.model_copy(update={"consumer_idle_s": 0.001})
    steps = Steps(redis, keys, impatient, consumer="janitor")
    assert await wait_until(lambda: steps.forget("grader", "grader")) == ["holds-none"]
    left: Any = await redis.xinfo_consumers(stream, "grader")
    assert [consumer["name"] for consumer in left] == [b"holds-one"]


async def test_a_stopped_worker_leaves_no_consumer_behind(redis: Redis, keys: Keys, redis_url: str) -> None:
    async with running(pipeline(), redis_url, keys):
        await ask(redis, keys, job_id="j")
        await wait_until(lambda: outcome(redis, keys, "j"))
    assert await redis.xinfo_consumers(keys.inbox("grader"), "grader") == []


async def test_a_transport_that_uvloop_closed_is_a_lost_connection(
    redis_url: str, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so with a bare RuntimeError, which would end the worker as a bug does."""
    closed = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"

    async def broken(*args: object, **options: object) -> None:
        raise RuntimeError(closed)

    client = connect(redis_url)
    steps = Steps(client, keys, FAST, consumer="c")
    monkeypatch.setattr(Redis, "execute_command", broken)
    monkeypatch.setattr(Pipeline, "execute", broken)
    with pytest.raises(RedisConnectionError, match="closed"):
        await client.ping()
    with pytest.raises(RedisConnectionError, match="closed"):
        await steps.forget("grader", "grader")
    await client.aclose()
