"""What `cairn scale` says where it can do nothing."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from shared.cli import app
from shared.scaler import docker_engine


def said(*arguments: str) -> tuple[int, str]:
    run = CliRunner().invoke(app, ["scale", *arguments])
    return run.exit_code, run.stderr


def test_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    code, text = said("grader", "2")
    assert code == 1
    assert text.startswith("no Docker engine that this user may ask (DOCKER_HOST names one)")


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_engine, "docker", None)
    assert said("grader", "2") == (1, "the Docker SDK is not installed: pip install 'cairn[scaler]'\n")


def test_a_setting_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_SCALER_SERVICES", '{"reader": {}}')
    code, text = said("grader", "2")
    assert code == 1
    assert "no services: reader" in text
    assert "Traceback" not in text


def test_unknown_services_and_no_replicas_are_refused() -> None:
    assert said("reader", "2") == (
        1,
        "no service reader; there are gateway, rewriter, retriever, grader, websearch, generator\n",
    )
    assert said("grader", "0")[0] == 2
