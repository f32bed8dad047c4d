"""Whether there is room for another job, and what it may spend: its own budget, as far as its tenant's day has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shared.contracts import Budget
from shared.errors import Overloaded
from shared.runtime.common import Common

RETRY_AFTER_S: Final = 5
"""A job's usual time; asking again sooner finds the same jobs."""
USED_UP: Final = "the tenant's budget for today is used up: no model is asked"


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """Of one tenant, over a day in UTC; 0 is no limit."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def left(self, budget: Budget, spent: Mapping[str, float]) -> Budget:
        """The part of a job's budget that the day still has. Pure.

        Jobs that run at the same time don't see each other's spending: a tenant may pass the limit by theirs.
        """
        cost = budget.cost
        if self.cost:
            left = max(0.0, self.cost - spent.get("cost", 0.0))
            cost = left if cost is None else min(cost, left)
        return Budget(
            model_calls=_least(budget.model_calls, self.calls, spent.get("calls", 0)),
            tokens=_least(budget.tokens, self.tokens, spent.get("tokens", 0)),
            cost=cost,
        )


class Allowance:
    """Looks at what runs, and into the tenants' accounts, which the steps that end jobs keep.

    Raises redis-py's errors, which the runtime sorts.
    """

    def __init__(self, common: Common, limits: DailyLimits, *, max_running: int = 0) -> None:
        """At most `max_running` jobs at once; 0 is no limit."""
        self._common = common
        self._limits = limits
        self._max_running = max_running

    async def check_room(self) -> None:
        """Raises Overloaded where no further job may run."""
        if not self._max_running:
            return
        redis: Any = self._common.redis
        if (running := await redis.zcard(self._common.keys.deadlines)) >= self._max_running:
            raise Overloaded(f"overloaded: {running} jobs are running; retry after {RETRY_AFTER_S} s")

    async def of(self, tenant: str, budget: Budget) -> Budget:
        """What a new job of this tenant gets of its budget."""
        if self._limits == DailyLimits():
            return budget
        redis: Any = self._common.redis
        raw = await redis.hgetall(self._common.keys.spent_today(tenant))
        return self._limits.left(budget, {name.decode(): float(value) for name, value in raw.items()})


def _least(own: int, limit: int, spent: float) -> int:
    return min(own, max(0, limit - int(spent))) if limit else own
