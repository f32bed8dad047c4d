"""The command line as scripts run it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from typer.testing import CliRunner, Result

from shared.cli import app
from shared.runtime.keys import Keys

Cli: TypeAlias = Callable[..., Awaitable[Result]]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No setting of the machine's, no `.env`, no running embedded server."""
    for name in [name for name in os.environ if name.startswith("CAIRN_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@pytest.fixture
def cli(environment: pytest.MonkeyPatch, redis_url: str, keys: Keys) -> Cli:
    """`cairn …` as a script runs it, in a thread of its own beside the test's workers."""
    environment.setenv("CAIRN_REDIS_URL", redis_url)
    environment.setenv("CAIRN_TOPIC_PREFIX", keys.prefix)

    async def run(*arguments: str, stdin: str | None = None) -> Result:
        found = await asyncio.to_thread(CliRunner().invoke, app, arguments, input=stdin)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found

    return run
