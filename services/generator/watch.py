"""Watches how many of the model's answers hold, over all workers, and switches generation off where too few do."""

from __future__ import annotations

import math
from importlib import resources
from typing import Any

import structlog
from prometheus_client import Gauge
from redis.exceptions import RedisError

from services.generator.settings import AnsweringPolicy
from shared.runtime.common import Common

GROUNDEDNESS = Gauge("cairn_groundedness", "Share of the latest answers of the model that held when checked.")
GROUNDEDNESS.set(math.nan)  # nothing was checked yet: a zero would say that nothing held

_log = structlog.get_logger("cairn")


class Groundedness:
    """The latest answers, as a list in Redis. Back on is by hand alone: `cairn control generation default`."""

    def __init__(self, common: Common, policy: AnsweringPolicy) -> None:
        self._note: Any = common.redis.register_script((resources.files(__package__) / "watch.lua").read_text("utf-8"))
        self._keys = (common.keys.groundedness, common.keys.control)
        self._bounds = (policy.watched_answers, policy.grounded_share)

    async def note(self, *, held: bool) -> None:
        """One more answer; whether it held at last, also after it was written again."""
        try:
            share = await self._note(keys=self._keys, args=(int(held), *self._bounds))
        except (RedisError, OSError) as away:  # the answer is there all the same
            _log.warning("can't note an answer", error=str(away))
        else:
            GROUNDEDNESS.set(float(share))
