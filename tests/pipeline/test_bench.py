"""The benchmarks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import ingest as ingestion
from bench import search
from bench.bus import run, serve_bare, serve_cairn
from shared.runtime.embedded_redis import start_server, stop_server


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server of its own: the benchmark empties it."""
    server, _ = start_server(tmp_path)
    yield server.url
    stop_server(tmp_path)


@pytest.mark.parametrize(("serve", "arguments"), [(serve_cairn, ()), (serve_bare, (1,)), (serve_bare, (64,))])
def test_every_job_comes_through(url: str, serve: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    measured = run(url, serve, (1_000, *arguments), jobs=20)
    assert measured.jobs_per_s > 0
    assert measured.cpu_ms_per_job >= 0


async def test_searches_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    await search.run(200, 5)
    assert "200" in capsys.readouterr().out


def test_ingestion_is_measured() -> None:
    first, again = ingestion.run(40, 20)
    assert first.passages == 40
    assert again.seconds > 0
