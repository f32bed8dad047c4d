"""What operators switch while everything runs: `cairn control`. One hash in Redis, looked at by every worker.

    generation     off                citations instead of answers
    web            off                no web search
    pause:STAGE    on                 the stage takes no more messages; those in hand are finished
    model:llm      a model's name     instead of CAIRN_LLM_MODEL; model:judge likewise

A switch is on until it is taken back by hand, also one that Cairn set itself (`generation`, when answers lose ground).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from shared.errors import PermanentError
from shared.runtime.keys import STAGES
from shared.runtime.steps import Steps

LOOK_EVERY_S: Final = 0.5
SWITCHES: Final[Mapping[str, tuple[str, ...]]] = {
    "generation": ("off",),
    "web": ("off",),
    **{f"pause:{stage}": ("on",) for stage in STAGES},
    "model:llm": (),
    "model:judge": (),
}
"""Switches and what they can be set to; any text where nothing is listed."""

_log = structlog.get_logger("cairn")


class Controls:
    """The switches as this worker last saw them. A worker that can't reach Redis keeps what it knows."""

    def __init__(self, found: Mapping[str, str] | None = None) -> None:
        self._found = dict(found or {})

    @property
    def generation(self) -> bool:
        return not self._found.get("generation", "").startswith("off")

    @property
    def web(self) -> bool:
        return self._found.get("web") != "off"

    def paused(self, stage: str) -> bool:
        return f"pause:{stage}" in self._found

    def model(self, role: str) -> str | None:
        """The model to use instead of the one in the settings; `role` is llm or judge."""
        return self._found.get(f"model:{role}")

    @property
    def all(self) -> dict[str, str]:
        return dict(self._found)

    async def look(self, steps: Steps) -> None:
        """Read the switches."""
        raw: Any = await steps.redis.hgetall(steps.keys.control)
        found = {name.decode(): value.decode() for name, value in raw.items()}
        if found != self._found:
            _log.warning("controls changed", before=self._found, now=found)
            self._found = found

    async def follow(self, steps: Steps) -> None:
        """A worker's chore: look again and again."""
        while True:
            try:
                await self.look(steps)
            except (RedisError, OSError) as away:
                _log.warning("can't look at the controls", error=str(away))
            await asyncio.sleep(LOOK_EVERY_S)


async def switch(steps: Steps, name: str, value: str) -> None:
    """Set a switch, or take it back with `value` default. Raises PermanentError for one that does not exist."""
    if name not in SWITCHES:
        raise PermanentError(f"no switch {name!r}; there are {', '.join(SWITCHES)}")
    redis: Any = steps.redis
    if value == "default":
        await redis.hdel(steps.keys.control, name)
        if name == "generation":  # else the answers that switched it off would do so again
            await redis.delete(steps.keys.groundedness)
        return
    if (allowed := SWITCHES[name]) and value not in allowed:
        raise PermanentError(f"{name} can be {' or '.join(allowed)}, or default; not {value!r}")
    await redis.hset(steps.keys.control, name, value)
