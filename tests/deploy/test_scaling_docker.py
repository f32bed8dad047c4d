"""Replicas in a real Docker engine: as compose makes them, found by the service's name, drained when they go."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from shared.cli import app
from shared.errors import Misconfigured
from shared.runtime.keys import Keys
from shared.runtime.subscriber import ensure_group
from shared.scaler.docker_engine import LABEL, Engine
from tests.deploy.stack import missing_engine
from tests.support.wait import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
PROJECT = "cairnscaletest"
# A worker's habits without its image: it says what it was, and takes a second to finish what is in hand.
COMPOSE = """
services:
  grader:
    image: debian:bookworm-slim
    init: true
    read_only: true
    cap_drop: [ALL]
    restart: unless-stopped
    stop_grace_period: 20s
    environment: {CAIRN_LOG_LEVEL: warning}
    tmpfs: ["/tmp:size=1m"]
    volumes: ["out:/out"]
    networks: [one, two]
    deploy: {resources: {limits: {memory: 32m, pids: 16}}}
    command: ["sh", "-c", "trap 'sleep 1; echo drained > /out/$$(hostname); exit 0' TERM; while :; do sleep 0.1; done"]
networks: {one: {internal: true}, two: {internal: true}}
volumes: {out: {}}
"""


class Project:
    """Containers of the file above."""

    def __init__(self, home: Path) -> None:
        self.file = home / "compose.yaml"
        self.file.write_text(COMPOSE, "utf-8")

    def compose(self, *arguments: str) -> str:
        command = ["docker", "compose", "--project-name", PROJECT, "--file", str(self.file), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def containers(self) -> dict[int, dict[str, Any]]:
        """Those that compose sees, by number."""
        ids = self.compose("ps", "--all", "--quiet", "grader").split()
        found = json.loads(subprocess.run(["docker", "inspect", *ids], capture_output=True, check=True).stdout)
        return {int(each["Config"]["Labels"][f"{LABEL}container-number"]): each for each in found}

    def inside(self, script: str) -> list[str]:
        return self.compose("exec", "--no-TTY", "grader", "sh", "-c", script).split()


@pytest.fixture
def engine() -> Iterator[Engine]:
    if missing := missing_engine():
        pytest.skip(f"{missing}: scaling was NOT tested on containers")
    with closing(Engine(PROJECT)) as engine:
        yield engine


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    if missing := missing_engine():
        pytest.skip(f"{missing}: scaling was NOT tested on containers")
    project = Project(tmp_path)
    try:
        project.compose("up", "--detach")
        yield project
    finally:
        project.compose("down", "--volumes", "--timeout", "2")


def test_one_four_and_one_again(project: Project, engine: Engine) -> None:
    (first,) = project.containers().values()
    assert engine.scale("grader", 4) == 1
    assert engine.count("grader") == 4
    found = project.containers()
    assert [found[number]["Name"] for number in range(1, 5)] == [f"/{PROJECT}-grader-{n}" for n in range(1, 5)]
    for each in found.values():
        assert each["State"]["Running"]
        assert each["Image"] == first["Image"]
        assert each["Config"]["Env"] == first["Config"]["Env"]
        assert each["HostConfig"] == first["HostConfig"]
    # Its own name, and one address under the service's name in each network: Prometheus finds it there.
    assert len({each["Config"]["Hostname"] for each in found.values()}) == 4
    addresses = {
        network["IPAddress"] for each in found.values() for network in each["NetworkSettings"]["Networks"].values()
    }
    assert len(addresses) == 8
    by_service = set(project.inside("getent ahostsv4 grader | cut -d' ' -f1"))
    assert len(by_service) >= 4
    assert by_service <= addresses
    assert project.inside(f"getent hosts {PROJECT}-grader-4")[0] in addresses

    assert engine.scale("grader", 1) == 4
    assert list(project.containers()) == [1], "the first one stays, and nothing stopped is left behind"
    assert len(project.inside("cat /out/*")) == 3, "those that went finished what they had"


def test_compose_takes_them_for_its_own(project: Project, engine: Engine) -> None:
    engine.scale("grader", 3)
    before = {each["Id"] for each in project.containers().values()}
    project.compose("up", "--detach", "--scale", "grader=4")
    after = {each["Id"] for each in project.containers().values()}
    assert before < after, "compose made one more and none anew"
    project.compose("up", "--detach", "--scale", "grader=1")
    assert engine.count("grader") == 1


def test_one_that_cannot_start_leaves_nothing_behind(project: Project) -> None:
    """A name that is taken by a container of no project."""
    taken = f"{PROJECT}-grader-2"
    subprocess.run(["docker", "create", "--name", taken, "debian:bookworm-slim"], capture_output=True, check=True)
    try:
        said = CliRunner().invoke(app, ["scale", "grader", "2", "--project", PROJECT])
        assert said.exit_code == 1
        assert "already in use" in said.stderr
        assert list(project.containers()) == [1]
    finally:
        subprocess.run(["docker", "rm", taken], capture_output=True, check=True)


def test_by_hand(project: Project) -> None:
    said = CliRunner().invoke(app, ["scale", "grader", "2", "--project", PROJECT])
    assert (said.exit_code, said.stdout) == (0, "grader: 1 -> 2\n")
    said = CliRunner().invoke(app, ["scale", "grader", "2", "--project", PROJECT])
    assert said.stdout == "grader: 2, as before\n"


def test_a_service_that_does_not_run_is_not_started(project: Project, engine: Engine) -> None:
    assert engine.count("rewriter") == 0
    with pytest.raises(Misconfigured, match="no container of rewriter runs in the compose project cairnscaletest"):
        engine.scale("rewriter", 2)
    project.compose("stop", "--timeout", "2", "grader")
    with pytest.raises(Misconfigured, match="no container of grader"):
        engine.scale("grader", 2)


async def test_the_scaler_follows_what_waits(
    project: Project, engine: Engine, redis: Redis, keys: Keys, redis_url: str
) -> None:
    """The program as it runs beside the stack: up with a backlog, down when it is gone, ended by SIGTERM."""
    stream, client = keys.inbox("grader"), cast(Any, redis)
    await ensure_group(redis, stream, "grader")
    for _ in range(100):
        await client.xadd(stream, {"data": "{}"})
    settings = {
        "CAIRN_REDIS_URL": redis_url,
        "CAIRN_TOPIC_PREFIX": keys.prefix,
        "CAIRN_SCALER_PROJECT": PROJECT,
        "CAIRN_SCALER_SERVICES": json.dumps({"grader": {"max": 3}}),
        "CAIRN_SCALER_EVERY_S": "0.1",
        "CAIRN_SCALER_DOWN_AFTER_S": "0.3",
        "CAIRN_LOG_FORMAT": "json",
    }
    scaler = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shared.scaler"), env=os.environ | settings, stderr=asyncio.subprocess.PIPE
    )
    try:
        await wait_until(lambda: engine.count("grader") == 3, within_s=60)
        await client.xtrim(stream, maxlen=0)
        await wait_until(lambda: engine.count("grader") == 1 and list(project.containers()) == [1], within_s=60)
    finally:
        scaler.terminate()
        _, logged = await scaler.communicate()
    assert scaler.returncode == 0
    lines = [json.loads(line) for line in logged.splitlines()]
    changes = [(line["replicas"], line["wanted"], line["reason"]) for line in lines if line["event"] == "scaling"]
    assert changes == [(1, 3, "backlog"), (3, 2, "idle"), (2, 1, "idle")], lines
