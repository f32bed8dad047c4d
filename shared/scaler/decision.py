"""How many replicas of a service there should be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Reason = Literal["below_min", "above_max", "backlog", "old", "busy", "idle", "cooldown", "steady", "stopped"]
BUSY_SHARE = 0.8
"""Of its slots that a replica should have in use: the rest is for arrivals that don't come evenly."""


class Bounds(BaseModel):
    """How far one service is scaled, and when."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: Annotated[int, Field(ge=1)] = 1
    max: Annotated[int, Field(ge=1, le=1000)] = 4
    slots: Annotated[int, Field(ge=1)] = 8
    """Deliveries that one replica works on at once: CAIRN_MAX_WORKERS, or the stage's own default."""
    waiting: Annotated[int, Field(ge=1)] = 16
    """Waiting messages that call for one replica more."""
    oldest_s: Annotated[float, Field(gt=0)] = 5.0
    """A message that waits for longer calls for one, too, however few they are."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError("min must not exceed max")
        return self


@dataclass(frozen=True, slots=True)
class Signals:
    """What a service's inboxes look like."""

    waiting: int
    """Messages that nobody works on: the stream's length without what is in hand."""
    oldest_s: float
    """Age of the oldest of them; 0 without one."""
    in_hand: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Replicas there should be from now on; `needed` is what the load alone calls for, within the bounds."""

    replicas: int
    reason: Reason
    needed: int


def decide(seen: Signals, replicas: int, bounds: Bounds, *, may_grow: bool = True, may_shrink: bool = True) -> Decision:
    """Up at once to what the load needs, down by one and only while nothing waits; `may_…` are the cooldowns.

    A service without any replica was stopped on purpose and stays so.
    """
    if replicas == 0:
        return Decision(0, "stopped", 0)
    by_load = math.ceil(seen.in_hand / (bounds.slots * BUSY_SHARE) + seen.waiting / bounds.waiting)
    is_late = seen.waiting > 0 and seen.oldest_s > bounds.oldest_s and by_load <= replicas
    needed = min(bounds.max, max(bounds.min, replicas + 1 if is_late else by_load))
    if not bounds.min <= replicas <= bounds.max:
        return Decision(needed, "below_min" if replicas < bounds.min else "above_max", needed)
    if needed > replicas:
        reason: Reason = "old" if is_late else "backlog" if seen.waiting else "busy"
        return Decision(needed, reason, needed) if may_grow else Decision(replicas, "cooldown", needed)
    if needed < replicas and not seen.waiting:
        return Decision(replicas - 1, "idle", needed) if may_shrink else Decision(replicas, "cooldown", needed)
    return Decision(replicas, "steady", needed)


class Pace:
    """The decisions of one service over time.

    After a change the load needs a moment to show its effect: nothing grows for `up_after_s`. Nothing shrinks before
    `down_after_s` have passed in which fewer replicas would have done all the time. Times are a monotonic clock's.
    """

    def __init__(self, bounds: Bounds, *, up_after_s: float, down_after_s: float) -> None:
        self.bounds = bounds
        self.up_after_s = up_after_s
        self.down_after_s = down_after_s
        self._changed_at = -math.inf
        self._needed_at: float | None = None

    def next(self, seen: Signals, replicas: int, now: float) -> Decision:
        """What to do now; whoever calls does it, or the same decision comes again after the cooldown."""
        if self._needed_at is None:
            self._needed_at = now
        decision = decide(
            seen,
            replicas,
            self.bounds,
            may_grow=now - self._changed_at >= self.up_after_s,
            may_shrink=now - self._needed_at >= self.down_after_s,
        )
        if decision.replicas != replicas:
            self._changed_at = self._needed_at = now
        elif decision.needed >= replicas or seen.waiting:
            self._needed_at = now
        return decision
