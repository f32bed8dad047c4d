"""`make up`: passwords made up once, compose asked to wait, and a fall-back that says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script beside the example, and a `docker` that writes down what it is asked."""
    (tmp_path / "deploy").mkdir()
    shutil.copy(ROOT / "deploy/up.sh", tmp_path / "deploy/up.sh")
    shutil.copy(ROOT / ".env.example", tmp_path / ".env.example")
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin/docker"
    docker.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n[ "$2" != port ] || echo 127.0.0.1:6379\n', "utf-8")
    docker.chmod(0o755)
    return tmp_path


def up(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "deploy/up.sh", *arguments],
        cwd=checkout,
        env={"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def passwords(checkout: Path) -> dict[str, str]:
    lines = (checkout / ".env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"\w*(PASSWORD|SECRET)\w*=", line))


def test_each_password_is_made_up_once(checkout: Path) -> None:
    assert up(checkout).returncode == 0
    made = passwords(checkout)
    assert len(made) > 10
    assert len(set(made.values())) == len(made)
    assert all(len(value) == 48 for value in made.values())
    assert (checkout / ".env").stat().st_mode & 0o077 == 0
    assert up(checkout).returncode == 0
    assert passwords(checkout) == made


def test_what_is_set_stays(checkout: Path) -> None:
    (checkout / ".env").write_text("GRAFANA_PASSWORD=mine\nQDRANT_PASSWORD=\nOTHER=a b\\n\n", "utf-8")
    assert up(checkout).returncode == 0
    text = (checkout / ".env").read_text("utf-8")
    assert text.startswith("GRAFANA_PASSWORD=mine\nQDRANT_PASSWORD=")
    assert text.endswith("\nOTHER=a b\\n\n")
    assert passwords(checkout)["QDRANT_PASSWORD"]


def test_it_waits_and_tells_what_to_do_next(checkout: Path) -> None:
    said = up(checkout).stdout
    assert "docker compose run --rm cairn ask" in said
    assert "127.0.0.1:6379" in said
    assert "compose up --detach --wait --wait-timeout 600 --build" in (checkout / "asked").read_text("utf-8")
    up(checkout, "--no-build")
    assert "--wait-timeout 600 --no-build" in (checkout / "asked").read_text("utf-8")


def test_without_docker_the_services_run_as_processes(checkout: Path) -> None:
    (checkout / "bin/docker").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    ended = up(checkout, MAKE="echo")
    assert (ended.returncode, ended.stdout) == (0, "local\n")
    assert "No Docker" in ended.stderr
    assert not (checkout / ".env").exists()
