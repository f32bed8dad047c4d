"""Settings: documented one by one, and refused when they contradict each other."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings

from services.gateway.settings import JwtSettings
from shared import settings
from shared.settings import JudgeSettings, LlmSettings, RuntimeSettings, WebSettings

ROOT = Path(__file__).parents[2]
MODULES = (
    "shared.settings",
    "shared.documents.settings",
    "shared.clients.pages.settings",
    "shared.scaler.settings",
    *(f"services.{path.parent.name}.settings" for path in sorted(ROOT.glob("services/*/settings.py"))),
)


def variables() -> set[str]:
    """Every environment variable that some settings class reads."""
    found = set()
    for name in MODULES:
        for kind in vars(importlib.import_module(name)).values():
            if isinstance(kind, type) and issubclass(kind, BaseSettings):
                prefix = kind.model_config.get("env_prefix")
                if not prefix:  # what several groups have in common
                    continue
                found |= {f"{prefix}{field}".upper() for field in kind.model_fields}
    return found


def test_every_variable_is_documented_once_and_none_is_invented() -> None:
    rows = re.findall(r"^\| `(CAIRN_\w+)`", (ROOT / "docs" / "settings.md").read_text("utf-8"), re.MULTILINE)
    assert [name for name, count in Counter(rows).items() if count > 1] == []
    assert set(rows) - {"CAIRN_TOKEN"} == variables()  # the token is the command line's, not a service's


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        (RuntimeSettings, {"heartbeat_s": 3, "claim_after_s": 8}, "CAIRN_HEARTBEAT_S"),
        (RuntimeSettings, {"backoff_initial_s": 3, "backoff_max_s": 1}, "CAIRN_BACKOFF_INITIAL_S"),
        (RuntimeSettings, {"block_s": 5}, "CAIRN_BLOCK_S"),
        (WebSettings, {"provider": "searxng"}, "CAIRN_WEB_BASE_URL"),
        (JwtSettings, {"secret": "a", "jwks_url": "b"}, "only one"),
        (JwtSettings, {"required": True}, "CAIRN_JWT_REQUIRED"),
    ],
)
def test_contradictions_are_refused(kind: type[BaseSettings], values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        kind(**values)


def test_the_judge_falls_back_to_the_chat_model() -> None:
    llm = LlmSettings(base_url="http://llm/v1", api_key=SecretStr("secret"), model="big")
    assert JudgeSettings().or_else(llm).base_url == "http://llm/v1"
    assert JudgeSettings(model="small").or_else(llm).model == "small"
    own = JudgeSettings(base_url="http://judge/v1").or_else(llm)
    assert (own.base_url, own.api_key) == ("http://judge/v1", None)  # a key goes to its own endpoint only


def test_secrets_are_not_printed() -> None:
    assert "hunter2" not in repr(LlmSettings(api_key=SecretStr("hunter2")))


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_REDIS_URL", "")
    assert settings.RedisSettings().redis_url is None
