"""The stack in a real Docker engine: built, brought up, asked, scaled, and brought down without losing anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.runtime.keys import STAGES
from tests.deploy.stack import Stack, missing_engine
from tests.support.wait import wait_until


def until(condition: Callable[[], Any], within_s: float) -> Any:
    return asyncio.run(wait_until(condition, within_s=within_s))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if missing := missing_engine():
        pytest.skip(f"{missing}: the containers were NOT tested")
    stack = Stack(tmp_path_factory.mktemp("docker"))
    try:
        stack.build()
        said = stack.run("sh", "deploy/up.sh", "--no-build", timeout_s=700)
        assert "docker compose run --rm cairn ask" in said
        report = json.loads(stack.cairn("ingest", "--json", DOCUMENT, mounts=(HANDBOOK.format(stack.home),)))
        assert report["errors"] == {}, report
        yield stack
    finally:
        stack.down()


pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
HANDBOOK = "{}/samples/handbook:/documents:ro"
DOCUMENT = "/documents/returns-and-refunds.md"
QUESTION = "How many days do I have to return a tent?"


def test_documents_go_in_and_answers_come_out(stack: Stack) -> None:
    outcome = stack.ask(QUESTION)
    assert outcome["status"] == "answered"
    assert outcome["citations"]
    assert stack.redis("ACL", "LOG") == "", "something wanted more than its rights"


def test_four_graders_share_the_work_and_are_found(stack: Stack) -> None:
    stack.compose("up", "--detach", "--no-build", "--no-recreate", "--wait", "--scale", "grader=4")
    try:
        consumers = stack.redis("XINFO", "CONSUMERS", "cairn:grader", "grader").split().count("name")
        assert consumers == 4
        assert until(lambda: len(stack.metrics('cairn_healthy{service="grader"} == 1')) == 4, within_s=60)
        assert stack.ask(QUESTION)["status"] == "answered"
    finally:
        stack.compose("up", "--detach", "--no-build", "--no-recreate", "--scale", "grader=1")
    assert until(lambda: stack.redis("XINFO", "CONSUMERS", "cairn:grader", "grader").split().count("name") == 1, 60)


def test_containers_can_do_little(stack: Stack) -> None:
    (grader,) = stack.containers("grader")
    host = stack.inspect(grader)["HostConfig"]
    assert (host["ReadonlyRootfs"], host["CapDrop"], host["Memory"] > 0) == (True, ["ALL"], True)
    probe = "id -u; for f in /opt/cairn /etc /usr; do touch $f/x 2>/dev/null && echo wrote $f; done; which pip gcc curl"
    found = stack.compose("exec", "--no-TTY", "grader", "sh", "-c", probe, check=False).split()
    assert found == ["10001"]


def test_a_worker_that_hangs_is_seen(stack: Stack) -> None:
    (rewriter,) = stack.containers("rewriter")

    def health() -> str:
        return str(stack.inspect(rewriter)["State"]["Health"]["Status"])

    def signal(name: str) -> None:
        script = (
            "import os, signal, pathlib\n"
            "for process in pathlib.Path('/proc').glob('[0-9]*'):\n"
            "    if process.name != '1' and b'worker\\0rewriter' in (process / 'cmdline').read_bytes():\n"
            f"        os.kill(int(process.name), signal.{name})\n"
        )
        stack.compose("exec", "--no-TTY", "rewriter", "python", "-c", script)

    signal("SIGSTOP")
    try:
        assert until(lambda: health() == "unhealthy", within_s=120)
    finally:
        signal("SIGCONT")
    assert until(lambda: health() == "healthy", within_s=60)


def test_a_backup_brings_back_what_was_lost(stack: Stack, tmp_path: Path) -> None:
    job_id = stack.ask(QUESTION)["job_id"]
    stack.run("sh", "deploy/backup.sh", "save", str(tmp_path / "backup"))
    stack.redis("FLUSHALL")
    stack.cairn("ingest", "--delete", DOCUMENT, mounts=(HANDBOOK.format(stack.home),))
    assert stack.ask(QUESTION)["status"] == "abstained"
    stack.run("sh", "deploy/backup.sh", "restore", str(tmp_path / "backup"))
    assert json.loads(stack.cairn("result", "--json", job_id))["status"] == "answered"
    assert stack.ask(QUESTION)["status"] == "answered"


def test_a_stop_is_clean_and_a_start_goes_on(stack: Stack) -> None:
    """A question asked while everything is stopped is answered by the start."""
    stack.compose("stop", *STAGES)
    ended = {
        stage: stack.inspect(container)["State"]["ExitCode"] for stage in STAGES for container in stack.stopped(stage)
    }
    assert ended == dict.fromkeys(STAGES, 0)
    entry_id = stack.redis("XADD", "cairn:gateway", "*", "data", json.dumps({"question": QUESTION, "deadline_s": 600}))
    stack.compose("up", "--detach", "--no-build", "--wait")
    assert json.loads(stack.cairn("result", "--json", "--wait", "60", entry_id))["status"] == "answered"
