"""`<VARIABLE>_FILE`: a setting whose value stands in a file, as Docker and Kubernetes hand secrets over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings, EnvSettingsSource

from shared.errors import Misconfigured


class Settings(BaseSettings):
    """Base of every settings group: each of its variables may be given by a file, too."""

    @classmethod
    def settings_customise_sources(cls, settings_cls: type[BaseSettings], *_: Any, **given: Any) -> tuple[Any, ...]:
        environment, dotenv = given["env_settings"], given["dotenv_settings"]
        files = EnvSettingsSource(settings_cls)
        files.env_vars = _contents(settings_cls, {**dotenv.env_vars, **environment.env_vars})
        return given["init_settings"], files, environment, dotenv


def _contents(group: type[BaseSettings], variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """What stands in the files that these variables name, by the variable each stands for. Names are lower case."""
    names = [f"{group.model_config.get('env_prefix', '')}{field}".lower() for field in group.model_fields]
    return {
        name: _content(name.upper(), Path(path), given=variables.get(name) is not None)
        for name in names
        if (path := variables.get(f"{name}_file"))
    }


def _content(variable: str, path: Path, *, given: bool) -> str:
    """Raises Misconfigured where nothing usable stands in the file: an empty secret would leave a door open."""
    if given:
        raise Misconfigured(f"set only one of {variable} and {variable}_FILE")
    try:
        content = path.read_text("utf-8").strip()
    except OSError as error:
        raise Misconfigured(f"{variable}_FILE: can't read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise Misconfigured(f"{variable}_FILE: {path} is not UTF-8 text") from None  # the error holds the bytes
    if not content:
        raise Misconfigured(f"{variable}_FILE: {path} is empty")
    return content
