"""Settings given by files: what stands in them counts, and what does not is said without showing it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings

from services.gateway.settings import JwtSettings
from shared.errors import Misconfigured
from shared.settings import JudgeSettings, LlmSettings, PriceSettings, RedisSettings
from shared.settings_files import Settings
from tests.unit.test_settings import MODULES

GROUPS = {
    kind
    for module in MODULES
    for kind in vars(importlib.import_module(module)).values()
    if isinstance(kind, type) and issubclass(kind, BaseSettings) and kind.model_config.get("env_prefix")
}
SECRETS = sorted(
    (
        (kind, name)
        for kind in GROUPS
        for name, field in kind.model_fields.items()
        if "SecretStr" in str(field.annotation)
    ),
    key=str,
)


@pytest.fixture(autouse=True)
def _no_dotenv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_group_reads_files() -> None:
    assert [kind for kind in GROUPS if not issubclass(kind, Settings)] == []


def test_no_settings_own_name_reads_like_another_ones_file() -> None:
    assert [name for kind in GROUPS for name in kind.model_fields if name.endswith("_file")] == []


@pytest.mark.parametrize(("kind", "name"), SECRETS)
def test_every_secret_may_stand_in_a_file(
    kind: type[BaseSettings], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("hunter2 é\n", "utf-8")
    monkeypatch.setenv(f"{kind.model_config['env_prefix']}{name}_FILE".upper(), "secret")
    secret = getattr(kind(), name)
    assert isinstance(secret, SecretStr)
    assert secret.get_secret_value() == "hunter2 é"


def test_other_settings_are_read_as_from_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pem = "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----"
    (tmp_path / "key.pem").write_text(f"{pem}\n")
    (tmp_path / "prices").write_text('{"small": [1, 2]}')
    (tmp_path / "fallbacks").write_text('[{"base_url": "http://b/v1", "api_key": "hunter2"}]')
    monkeypatch.setenv("CAIRN_JWT_PUBLIC_KEY_FILE", "key.pem")
    monkeypatch.setenv("CAIRN_PRICES_FILE", "prices")
    monkeypatch.setenv("CAIRN_LLM_FALLBACKS_FILE", "fallbacks")
    assert JwtSettings().public_key == pem
    assert PriceSettings().prices == {"small": (1, 2)}
    assert LlmSettings().fallbacks[0].api_key == SecretStr("hunter2")


def test_dotenv_may_name_the_file_and_an_empty_variable_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("redis://:hunter2@redis:6379/0")
    (tmp_path / ".env").write_text("CAIRN_REDIS_URL_FILE=secret\n")
    monkeypatch.setenv("CAIRN_REDIS_URL", "")  # as compose passes one that is not set
    monkeypatch.setenv("CAIRN_LLM_API_KEY_FILE", "")
    assert RedisSettings().redis_url == SecretStr("redis://:hunter2@redis:6379/0")
    assert LlmSettings().api_key is None


def test_a_variable_and_its_file_contradict_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CAIRN_JUDGE_API_KEY=hunter2\n")
    monkeypatch.setenv("CAIRN_JUDGE_API_KEY_FILE", "secret")
    with pytest.raises(Misconfigured, match=r"only one of CAIRN_JUDGE_API_KEY and CAIRN_JUDGE_API_KEY_FILE$"):
        JudgeSettings()


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), (b"", "is empty"), (b" \n", "is empty"), (b"hunter2 \xff", "is not UTF-8 text")],
)
def test_an_unusable_file_is_named_with_its_variable(
    content: bytes | None, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("CAIRN_JWT_SECRET_FILE", "secret")
    with pytest.raises(Misconfigured, match=f"^CAIRN_JWT_SECRET_FILE: .*{why}") as refused:
        JwtSettings()
    assert "hunter2" not in str(refused.value)


def test_a_directory_is_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAIRN_JWT_SECRET_FILE", str(tmp_path))
    with pytest.raises(Misconfigured, match="CAIRN_JWT_SECRET_FILE: can't read"):
        JwtSettings()


def test_a_contradiction_shows_no_secret() -> None:
    with pytest.raises(ValidationError) as refused:
        JwtSettings(secret=SecretStr("a"), jwks_url="https://name:hunter2@keys/")
    assert "hunter2" not in str(refused.value)
