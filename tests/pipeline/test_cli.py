"""The command line beside running workers: what it prints, what it exits with."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from io import StringIO
from pathlib import Path
from typing import Any

import jwt
import pytest
import typer
from redis.asyncio import Redis
from rich.console import Console

from services.gateway.settings import JwtSettings
from shared.cli import console
from shared.contracts import (
    Answered,
    Document,
    Generate,
    Grade,
    Ingest,
    Ingested,
    SearchWeb,
    Status,
    TrailPassage,
    TrailStep,
)
from shared.errors import InvalidModelReply
from shared.runtime.ending import end_job
from shared.runtime.keys import INBOXES, Keys
from shared.runtime.steps import Steps
from tests.pipeline.conftest import Cli
from tests.runtime.test_failures import dead_letters
from tests.support import bus
from tests.support.bus import FAST, ask, outcome, pipeline, running
from tests.support.wait import wait_until

NOBODY = "redis://127.0.0.1:1"
"""Port 1 is privileged and, on any machine that tests run on, nobody's."""


async def fail_grading(msg: Grade) -> Generate:
    raise InvalidModelReply("the judge speaks [in] riddles")


def ending(status: Status, **fields: Any) -> Callable[[Generate], Awaitable[Answered]]:
    async def generate(msg: Generate) -> Answered:
        return Answered.ending(msg.header, status, now=time.time(), **fields)

    return generate


# --- ask -----------------------------------------------------------------------------------------------------------


async def test_ask_shows_stages_and_the_answer(cli: Cli, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(), redis_url, keys):
        found = await cli("ask", "Why [is] it :dog: so?", "--job-id", "j")
    assert found.exit_code == 0
    assert "Why [is] it :dog: so?" in found.stdout
    assert "job j:" in found.stdout
    stages = [line.split()[0] for line in found.stderr.splitlines()]
    assert stages == ["gateway", "rewriter", "retriever", "grader"]


async def test_ask_as_json_prints_one_line_and_nothing_else(cli: Cli, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(), redis_url, keys):
        found = await cli("ask", "Où est-ce ?", "--json", "--job-id", "j")
    assert (found.exit_code, found.stderr, found.stdout.count("\n")) == (0, "", 1)
    answered = Answered.model_validate_json(found.stdout)
    assert (answered.status, answered.answer, answered.job_id) == ("answered", "Où est-ce ?", "j")


async def test_ask_reads_the_question_from_standard_input(cli: Cli, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(), redis_url, keys):
        found = await cli("ask", "-", "--json", stdin="Line one\nand two?\n")
    assert Answered.model_validate_json(found.stdout).answer == "Line one\nand two?"


EXIT_CODES: list[tuple[Status, int]] = [("answered", 0), ("citations", 0), ("abstained", 3), ("failed", 4)]


@pytest.mark.parametrize(("status", "code"), EXIT_CODES)
async def test_how_a_job_ends_is_the_exit_code(status: Status, code: int, cli: Cli, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(ending(status)), redis_url, keys):
        asked = await cli("ask", "Why?", "--job-id", "j")
        again = await cli("result", "j")
    assert (asked.exit_code, again.exit_code) == (code, code)
    assert asked.stdout == again.stdout
    assert asked.stdout.startswith(status)


async def test_a_failed_job_says_why(cli: Cli, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(fail_grading), redis_url, keys):
        found = await cli("ask", "Why?")
    assert found.exit_code == 4
    assert "the judge speaks [in] riddles" in found.stdout


async def test_a_late_job_exits_as_ended(cli: Cli, redis_url: str, keys: Keys) -> None:
    async with running([bus.gateway()], redis_url, keys):
        found = await cli("ask", "Why?", "--deadline", "0.2")
    assert found.exit_code == 5
    assert found.stdout.startswith("timed_out")


async def test_a_cancelled_job_exits_as_ended(cli: Cli, redis: Redis, redis_url: str, keys: Keys) -> None:
    async with running([bus.gateway()], redis_url, keys):
        asking = asyncio.ensure_future(cli("ask", "Why?", "--job-id", "j"))
        await wait_until(lambda: redis.hget(keys.job("j"), "at"))
        assert await end_job(Steps(redis, keys, FAST), "j", "cancelled")
        found = await asking
    assert found.exit_code == 5
    assert found.stdout.startswith("cancelled")


async def test_the_same_id_again_gives_the_same_outcome(cli: Cli, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(), redis_url, keys):
        first = await cli("ask", "Why?", "--job-id", "j", "--json")
        again = await cli("ask", "Something else?", "--job-id", "j", "--json")
    assert first.stdout == again.stdout


async def test_options_travel_to_the_job(cli: Cli, redis_url: str, keys: Keys) -> None:
    told: list[Generate] = []

    async def generate(msg: Generate) -> Answered:
        told.append(msg)
        return await bus.generate(msg)

    options = ("--collection", "handbook", "--top-k", "3", "--web", "off", "--answer", "citations", "--language", "fr")
    async with running(pipeline(generate), redis_url, keys):
        await cli("ask", "Why?", *options, "--deadline", "30")
    (msg,) = told
    asked = msg.asked
    assert (asked.collection, asked.top_k, asked.web, asked.answer, asked.language) == (
        "handbook",
        3,
        "off",
        "citations",
        "fr",
    )
    assert msg.header.deadline - msg.header.submitted_at == pytest.approx(30)


@pytest.mark.parametrize("way", ["file", "variable"])
async def test_a_token_says_who_asks_and_is_not_shown(
    way: str,
    *,
    cli: Cli,
    redis: Redis,
    redis_url: str,
    keys: Keys,
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    secret = "a secret of at least thirty-two bytes"
    token = jwt.encode({"exp": int(time.time()) + 60, "tenant": "acme"}, secret, algorithm="HS256")
    arguments: tuple[str, ...] = ()
    if way == "file":
        (tmp_path / "token").write_text(f"{token}\n", "utf-8")
        arguments = ("--token-file", "token")
    else:
        environment.setenv("CAIRN_TOKEN", token)
    verifying = bus.gateway(JwtSettings.model_validate({"secret": secret, "required": True}))
    async with running([verifying, *pipeline()[1:]], redis_url, keys):
        found = await cli("ask", "Why?", "--job-id", "j", *arguments)
    assert found.exit_code == 0
    assert await redis.hget(keys.job("j"), "tenant") == b"acme"
    assert token not in found.output


# --- submit, result, cancel, trail ---------------------------------------------------------------------------------


async def test_submit_prints_the_id_under_which_the_outcome_will_be(cli: Cli, redis_url: str, keys: Keys) -> None:
    submitted = await cli("submit", "Why?")
    job_id = submitted.stdout.strip()
    early = await cli("result", job_id)
    assert (submitted.exit_code, early.exit_code, early.stdout) == (0, 6, "")
    assert "not admitted yet" in early.stderr
    async with running(pipeline(), redis_url, keys):
        found = await cli("result", job_id, "--wait", "10", "--json")
    assert found.exit_code == 0
    assert Answered.model_validate_json(found.stdout).job_id == job_id


async def test_submit_prints_an_id_as_it_is(cli: Cli) -> None:
    """Ids may hold colons, and rich would make emoji of some."""
    assert (await cli("submit", "Why?", "--job-id", "a.dog~b")).stdout == "a.dog~b\n"


async def test_result_of_a_running_job_says_where_it_is(cli: Cli, redis: Redis, redis_url: str, keys: Keys) -> None:
    async with running([bus.gateway()], redis_url, keys):
        await ask(redis, keys, job_id="j")
        await wait_until(lambda: redis.hget(keys.job("j"), "at"))
        found = await cli("result", "j")
    assert (found.exit_code, found.stderr) == (6, "job j is in the rewriter\n")


async def test_result_waits_no_longer_than_told(cli: Cli) -> None:
    found = await cli("result", "unknown", "--wait", "0.05")
    assert found.exit_code != 0
    assert found.stderr == "job unknown did not end within 0 s\n"


async def test_cancel_ends_a_running_job_once(cli: Cli, redis: Redis, redis_url: str, keys: Keys) -> None:
    async with running([bus.gateway()], redis_url, keys):
        await ask(redis, keys, job_id="j")
        await wait_until(lambda: redis.hget(keys.job("j"), "at"))
        first, again = await cli("cancel", "j"), await cli("cancel", "j")
    assert (first.exit_code, first.stdout) == (0, "cancelled\n")
    assert (again.exit_code, again.stdout) == (0, "had ended already\n")
    assert (await cli("result", "j")).exit_code == 5


@pytest.mark.parametrize("command", ["result", "cancel", "trail"])
@pytest.mark.parametrize("job_id", ["unknown", "[/red]", ":dog:", "é"])
async def test_an_unknown_job_is_not_found(command: str, job_id: str, cli: Cli) -> None:
    found = await cli(command, job_id)
    assert (found.exit_code, found.stdout) == (6, "")
    assert found.stderr == f"job {job_id} is unknown, or not admitted yet\n"


async def grade_with_a_trail(msg: Grade) -> Generate:
    passage = TrailPassage(
        passage_id="p-1", origin="web", score=0.5, grade=0.25, relevance="partial", reason="says [nothing] of it"
    )
    step = TrailStep(hop=0, queries=("a", "b"), passages=(passage,), verdict="ambiguous", reason="too [little]")
    return Generate(
        header=msg.header.updated(step=step), asked=msg.asked, route=msg.route, verdict="ambiguous", evidence=()
    )


async def test_trail_shows_stages_searches_grades_and_decisions(cli: Cli, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(grade_with_a_trail), redis_url, keys):
        await cli("ask", "Why?", "--job-id", "j")
        found, as_json = await cli("trail", "j"), await cli("trail", "j", "--json")
    assert (found.exit_code, as_json.exit_code) == (0, 0)
    shown = " ".join(found.stdout.split())
    for text in ("gateway", "grader", "answered after", "hop 1: a | b", "p-1", "0.25 partial", "says [nothing]"):
        assert text in shown
    assert "decision: ambiguous too [little]" in shown
    events = json.loads(as_json.stdout)
    assert [event["type"] for event in events] == ["stage"] * 4 + ["terminal"]
    assert events[-1]["data"]["status"] == "answered"


# --- wrong usage ---------------------------------------------------------------------------------------------------

WRONG_USAGE = [
    pytest.param(["ask"], id="no question"),
    pytest.param(["ask", "Why?", "--nope"], id="no such option"),
    pytest.param(["ask", "Why?", "--top-k", "many"], id="no number"),
    pytest.param(["ask", "Why?", "--token-file", "/nowhere/at/all"], id="no such file"),
    pytest.param(["ask", "Why?", "--token-file", "."], id="a directory"),
    pytest.param(["submit"], id="nothing to submit"),
    pytest.param(["result"], id="no id"),
    pytest.param(["cancel", "a", "b"], id="too many ids"),
    pytest.param(["dead", "show"], id="no letter"),
    pytest.param(["dead", "list", "--limit", "x"], id="no limit"),
    pytest.param(["nonsense"], id="no such command"),
]


@pytest.mark.parametrize("arguments", WRONG_USAGE)
async def test_wrong_usage_is_two(arguments: list[str], cli: Cli, redis: Redis, keys: Keys) -> None:
    found = await cli(*arguments)
    assert found.exit_code == 2
    assert "Usage:" in found.stderr
    assert await redis.xlen(keys.inbox("gateway")) == 0


WRONG_VALUES = [
    pytest.param(["--web", "maybe"], "web", id="web"),
    pytest.param(["--top-k", "500"], "top_k", id="top_k"),
    pytest.param(["--deadline", "-1"], "deadline_s", id="deadline"),
    pytest.param(["--language", "english"], "language", id="language"),
    pytest.param(["--job-id", "../x"], "job_id", id="job id"),
]


@pytest.mark.parametrize(("arguments", "named"), WRONG_VALUES)
async def test_a_value_out_of_the_contract_is_one_line(
    arguments: list[str], named: str, cli: Cli, redis: Redis, keys: Keys
) -> None:
    found = await cli("submit", "Why?", *arguments)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.startswith(f"{named}: ")
    assert found.stderr.count("\n") == 1
    assert await redis.xlen(keys.inbox("gateway")) == 0


async def test_an_empty_question_is_one_line(cli: Cli) -> None:
    found = await cli("ask", "-", stdin="\n")
    assert found.exit_code == 1
    assert found.stderr.startswith("question: ")


@pytest.mark.parametrize("command", ["ask", "submit", "result", "cancel", "trail", "doctor", "dead", "ingest", "up"])
async def test_every_command_has_help(command: str, cli: Cli) -> None:
    found = await cli(command, "--help")
    assert found.exit_code == 0
    assert "Usage:" in found.stdout


def test_a_message_on_a_terminal_is_shown_as_it_is(environment: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    environment.setattr(console, "err", Console(file=screen, force_terminal=True, color_system=None, soft_wrap=True))
    with pytest.raises(typer.Exit):
        console.fail("no job [/red] :x", console.Exit.NOT_FOUND)
    assert "no job [/red] :x" in screen.getvalue()


# --- dead letters --------------------------------------------------------------------------------------------------


async def letter_id(redis: Redis, keys: Keys) -> str:
    entries: Any = await redis.xrange(keys.dead)
    return str(entries[-1][0].decode())


async def put_letter(redis: Redis, keys: Keys, **fields: Any) -> str:
    letter = {
        "stage": "grader",
        "inbox": "grader",
        "entry_id": "1-0",
        "job_id": "j",
        "reason": "permanent",
        "error": "oops",
        "deliveries": 1,
        "worker": "w",
        "failed_at": 0.0,
        "whole": True,
        "fields": {},
        **fields,
    }
    entry_id: Any = await redis.xadd(keys.dead, {"data": json.dumps(letter)})
    return str(entry_id.decode())


async def test_without_dead_letters_there_is_little_to_say(cli: Cli) -> None:
    assert (await cli("dead", "list")).stdout == "no dead letters\n"
    assert json.loads((await cli("dead", "list", "--json")).stdout) == []
    assert (await cli("dead", "purge", "--all")).stdout == "deleted 0\n"


async def test_a_dead_letter_is_listed_and_shown(cli: Cli, redis: Redis, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(fail_grading), redis_url, keys):
        await cli("ask", "Why?", "--job-id", "j")
    name = await letter_id(redis, keys)
    listed, as_json, shown = (
        await cli("dead", "list"),
        await cli("dead", "list", "--json"),
        await cli("dead", "show", name),
    )
    assert (listed.exit_code, as_json.exit_code, shown.exit_code) == (0, 0, 0)
    for text in (name, "grader", "permanent", "j"):
        assert text in listed.stdout
    (letter,) = json.loads(as_json.stdout)
    assert (letter["id"], letter["stage"], letter["error"]) == (name, "grader", "the judge speaks [in] riddles")
    assert json.loads(shown.stdout) == {key: value for key, value in letter.items() if key != "id"}
    assert json.loads(json.loads(shown.stdout)["fields"]["data"])["header"]["job_id"] == "j"


async def test_newest_letters_are_listed_first_and_no_more_than_wanted(cli: Cli, redis: Redis, keys: Keys) -> None:
    names = [await put_letter(redis, keys, job_id=f"j-{number}") for number in range(5)]
    listed = json.loads((await cli("dead", "list", "--limit", "2", "--json")).stdout)
    assert [letter["id"] for letter in listed] == [names[4], names[3]]


@pytest.mark.parametrize("hostile", ["[/red]", "[bold", ":dog:", None])
async def test_a_forged_letter_is_listed_as_it_is(hostile: str | None, cli: Cli, redis: Redis, keys: Keys) -> None:
    await put_letter(redis, keys, job_id=hostile, error=str(hostile))
    found = await cli("dead", "list")
    assert found.exit_code == 0
    assert found.stdout.count(str(hostile)) == 2


async def test_a_retried_job_ends_under_its_new_id(cli: Cli, redis: Redis, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(fail_grading), redis_url, keys):
        assert (await cli("ask", "Why?", "--job-id", "j")).exit_code == 4
    async with running(pipeline(), redis_url, keys):
        retried = await cli("dead", "retry", await letter_id(redis, keys))
        new_id = retried.stdout.strip()
        found = await cli("result", new_id, "--wait", "10", "--json")
    assert retried.exit_code == 0
    assert new_id.startswith("j~")
    answered = Answered.model_validate_json(found.stdout)
    assert (answered.status, answered.job_id, answered.answer) == ("answered", new_id, "Why?")
    assert await dead_letters(redis, keys) == []
    old = await outcome(redis, keys, "j")
    assert old is not None
    assert old.status == "failed"


async def test_a_retried_job_that_fails_again_is_a_letter_again(
    cli: Cli, redis: Redis, redis_url: str, keys: Keys
) -> None:
    async with running(pipeline(fail_grading), redis_url, keys):
        await cli("ask", "Why?", "--job-id", "j")
        retried = await cli("dead", "retry", await letter_id(redis, keys))
        assert (await cli("result", retried.stdout.strip(), "--wait", "10")).exit_code == 4
    (letter,) = await dead_letters(redis, keys)
    assert letter["job_id"] == retried.stdout.strip()


async def test_a_retried_document_goes_to_the_index_again(cli: Cli, redis: Redis, keys: Keys) -> None:
    document = Document(document_id="d", title="t", uri="u", content_hash="h")
    message = Ingest(run_id="run-1", document=document)
    name = await put_letter(redis, keys, stage="retriever", inbox="ingest", fields={"data": message.model_dump_json()})
    assert (await cli("dead", "retry", name)).exit_code == 0
    entries: Any = await redis.xrange(keys.inbox("ingest"))
    ((_, fields),) = entries
    assert Ingest.model_validate_json(fields[b"data"]) == message
    assert await dead_letters(redis, keys) == []


CANNOT_BE_RETRIED = [
    pytest.param({"whole": False, "fields": {"data": "x"}}, "too big", id="cut"),
    pytest.param({"fields": {"data": "{"}}, "can't be read", id="no JSON"),
    pytest.param({"fields": {}}, "can't be read", id="no fields"),
    pytest.param({"inbox": "gateway", "fields": {"question": ""}}, "can't be read", id="a refused question"),
    pytest.param({"inbox": "ingest", "fields": {"data": "{}"}}, "", id="a broken document"),
    pytest.param({"reason": "superseded"}, "belonged to no job", id="a copy"),
    pytest.param({"reason": "unknown"}, "belonged to no job", id="perhaps forged"),
]


@pytest.mark.parametrize(("fields", "said"), CANNOT_BE_RETRIED)
async def test_a_letter_that_cannot_be_sent_again_is_kept(
    fields: dict[str, Any], said: str, cli: Cli, redis: Redis, keys: Keys
) -> None:
    found = await cli("dead", "retry", await put_letter(redis, keys, **fields))
    assert found.exit_code in (1, 4)
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert len(await dead_letters(redis, keys)) == 1


async def test_letters_are_purged_one_by_one_or_all_at_once(cli: Cli, redis: Redis, keys: Keys) -> None:
    names = [await put_letter(redis, keys) for _ in range(3)]
    assert (await cli("dead", "purge", names[0])).stdout == "deleted 1\n"
    assert (await cli("dead", "purge", names[0])).stdout == "deleted 0\n"
    for arguments in ([], [names[1], "--all"]):
        refused = await cli("dead", "purge", *arguments)
        assert (refused.exit_code, refused.stderr) == (1, "name one dead letter, or pass --all\n")
    assert await redis.xlen(keys.dead) == 2
    assert (await cli("dead", "purge", "--all")).stdout == "deleted 2\n"
    assert await redis.xlen(keys.dead) == 0


@pytest.mark.parametrize("command", ["show", "retry"])
async def test_an_unknown_letter_is_not_found(command: str, cli: Cli) -> None:
    found = await cli("dead", command, "1-0")
    assert (found.exit_code, found.stderr) == (6, "no dead letter 1-0\n")


# --- without Redis -------------------------------------------------------------------------------------------------

COMMANDS = [
    ["ask", "Why?"],
    ["submit", "Why?"],
    ["result", "j"],
    ["cancel", "j"],
    ["trail", "j"],
    ["dead", "list"],
    ["dead", "retry", "1-0"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
async def test_without_redis_there_is_one_clear_line(
    arguments: list[str], cli: Cli, environment: pytest.MonkeyPatch
) -> None:
    environment.delenv("CAIRN_REDIS_URL")
    found = await cli(*arguments)
    assert (found.exit_code, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert found.stderr.startswith("no Redis: set CAIRN_REDIS_URL")


async def test_a_redis_that_is_down_is_one_clear_line(cli: Cli, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("CAIRN_REDIS_URL", NOBODY)
    found = await cli("submit", "Why?")
    assert (found.exit_code, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert found.stderr.startswith("Redis: ")
    assert "cairn doctor" in found.stderr


# --- doctor --------------------------------------------------------------------------------------------------------


async def findings(cli: Cli) -> tuple[int, dict[str, dict[str, str]]]:
    found = await cli("doctor", "--json")
    assert found.stderr == ""
    return found.exit_code, {finding["what"]: finding for finding in json.loads(found.stdout)}


async def search_web(msg: SearchWeb) -> Grade:
    raise AssertionError("nobody searches the web here")


async def ingest(msg: Ingest) -> Ingested:
    raise AssertionError("nobody ingests here")


async def reading(redis: Redis, keys: Keys, *inboxes: str) -> bool:
    """Whether each of these inboxes has a worker that has asked for messages."""
    return all([await redis.xinfo_consumers(keys.inbox(inbox), INBOXES[inbox]) for inbox in inboxes])


async def test_doctor_finds_workers_and_who_is_missing(cli: Cli, redis: Redis, redis_url: str, keys: Keys) -> None:
    async with running(pipeline(), redis_url, keys):
        await wait_until(lambda: reading(redis, keys, "gateway", "rewriter", "retriever", "grader", "generator"))
        code, found = await findings(cli)
    assert code == 1
    assert set(INBOXES) | {"python", "redis", "index", "embedder", "judge", "writer", "web"} == set(found)
    workers = {name: found[name]["state"] for name in INBOXES}
    assert [name for name, state in workers.items() if state == "wrong"] == ["websearch", "ingest"]
    assert "cairn worker retriever" in found["ingest"]["said"]
    assert found["web"]["state"] == "note"


async def test_doctor_is_content_with_a_whole_system(cli: Cli, redis: Redis, redis_url: str, keys: Keys) -> None:
    async with running([*pipeline(), bus.stage(search_web), bus.stage(ingest)], redis_url, keys):
        await wait_until(lambda: reading(redis, keys, *INBOXES))
        code, found = await findings(cli)
        said = await cli("doctor")
    wrong = {name for name, finding in found.items() if finding["state"] == "wrong"}
    # A server that CAIRN_TEST_REDIS_URL names may lack an append-only file, which is then rightly found.
    assert wrong <= {"redis"}
    assert code == said.exit_code == (1 if wrong else 0)


async def test_doctor_names_the_setting_of_an_endpoint_that_is_away(cli: Cli, environment: pytest.MonkeyPatch) -> None:
    for name in ("LLM", "EMBED", "WEB"):
        environment.setenv(f"CAIRN_{name}_BASE_URL", "http://127.0.0.1:1/v1")
    environment.setenv("CAIRN_QDRANT_URL", "http://127.0.0.1:1")
    code, found = await findings(cli)
    assert code == 1
    for what, setting in [("writer", "CAIRN_LLM_BASE_URL"), ("embedder", "CAIRN_EMBED_BASE_URL")]:
        assert (found[what]["state"], setting in found[what]["said"]) == ("wrong", True)
    assert "CAIRN_WEB_BASE_URL" in found["web"]["said"]
    assert "CAIRN_QDRANT_URL" in found["index"]["said"]


@pytest.mark.parametrize("url", [None, NOBODY])
async def test_doctor_without_redis_says_what_to_set(
    url: str | None, cli: Cli, environment: pytest.MonkeyPatch
) -> None:
    if url is None:
        environment.delenv("CAIRN_REDIS_URL")
    else:
        environment.setenv("CAIRN_REDIS_URL", url)
    code, found = await findings(cli)
    assert (code, found["redis"]["state"]) == (1, "wrong")
    assert "CAIRN_REDIS_URL" in found["redis"]["said"]
    assert "writer" in found
