"""The stack of compose.yaml in a real Docker engine, for tests."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = "cairntest"


def missing_engine() -> str:
    """What is missing, or the empty string."""
    if shutil.which("docker") is None:
        return "no docker here"
    for command in (["docker", "info"], ["docker", "compose", "version"], ["docker", "buildx", "version"]):
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return f"`{' '.join(command)}` fails: no engine runs, or a plugin is missing"
    return ""


class Stack:
    """This checkout as a compose project of its own, in a directory of its own: a developer's .env is not touched.

    Where a registry answers: everything but SearXNG. Elsewhere: Redis, the six services and Prometheus, in images made
    of the machine's own packages (compose.local.yaml), with the embedded index.
    """

    def __init__(self, home: Path) -> None:
        pulls = subprocess.run(["docker", "manifest", "inspect", "redis:7"], capture_output=True, check=False)
        self.files = ["compose.yaml"] + (["tests/deploy/compose.local.yaml"] if pulls.returncode else [])
        self.home = home / "checkout"
        ignored = shutil.ignore_patterns(".venv", ".git", ".cairn", ".env", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, self.home, ignore=ignored)
        example = (self.home / ".env.example").read_text("utf-8")
        with_passwords = re.sub(
            r"^(\w+)=$", lambda found: f"{found[1]}={secrets.token_hex(16)}", example, flags=re.MULTILINE
        )
        settings = {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "COMPOSE_FILE": ":".join(self.files),
            "COMPOSE_PROFILES": "monitoring" if pulls.returncode else "qdrant,monitoring",
            "CAIRN_IMAGE": f"{PROJECT}:local",
            "CAIRN_WEB_PROVIDER": "none",
            "REDIS_PORT": "0",
            "GRAFANA_PORT": "0",
            **({"CAIRN_QDRANT_URL": ""} if pulls.returncode else {}),
        }
        own = "".join(f"{name}={value}\n" for name, value in settings.items())  # the last line of a name counts
        (self.home / ".env").write_text(with_passwords + own, "utf-8")

    def build(self) -> None:
        files = [part for file in self.files for part in ("--file", file)]
        self.run("docker", "buildx", "bake", *files, "--load", "gateway", timeout_s=1200)

    def down(self) -> None:
        self.compose("--profile", "*", "down", "--volumes", "--timeout", "50", check=False)

    def run(self, *command: str, timeout_s: float = 600.0, check: bool = True) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CAIRN_", "COMPOSE_"))}
        ended = subprocess.run(
            command, cwd=self.home, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and ended.returncode != 0:
            logs = subprocess.run(
                ["docker", "compose", "logs", "--tail", "20"],
                cwd=self.home,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            pytest.fail(
                f"{' '.join(command)}: exit code {ended.returncode}\n{ended.stderr}\n{ended.stdout}\n{logs.stdout}"
            )
        return ended.stdout

    def compose(self, *arguments: str, timeout_s: float = 600.0, check: bool = True) -> str:
        return self.run("docker", "compose", *arguments, timeout_s=timeout_s, check=check)

    def cairn(self, *arguments: str, mounts: tuple[str, ...] = (), check: bool = True) -> str:
        volumes = [part for mount in mounts for part in ("--volume", mount)]
        return self.compose("run", "--rm", "--no-TTY", *volumes, "cairn", *arguments, check=check)

    def ask(self, question: str) -> dict[str, Any]:
        """The outcome; the command's exit code tells its status once more."""
        found: dict[str, Any] = json.loads(self.cairn("ask", "--json", question, check=False))
        return found

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "--quiet", service).split()

    def stopped(self, service: str) -> list[str]:
        return self.compose("ps", "--all", "--quiet", service).split()

    def inspect(self, container: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(self.run("docker", "inspect", container))
        return found[0]

    def metrics(self, query: str) -> list[dict[str, Any]]:
        """What Prometheus answers."""
        answer = self.compose(
            *("exec", "--no-TTY", "prometheus", "promtool", "query", "instant", "--format=json"),
            *("http://127.0.0.1:9090", query),
        )
        found: list[dict[str, Any]] = json.loads(answer)
        return found

    def redis(self, *command: str) -> str:
        """As the administrator, inside the container."""
        script = 'REDISCLI_AUTH=$REDIS_PASSWORD_ADMIN exec redis-cli --user admin "$@"'
        return self.compose("exec", "--no-TTY", "redis", "sh", "-c", script, "redis-cli", *command).strip()
