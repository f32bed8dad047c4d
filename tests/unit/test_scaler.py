"""The scaler's decisions: one by one, and over a minute of load in virtual time."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from pydantic import ValidationError

from services.grader.main import open_stage
from shared.runtime.common import Common
from shared.runtime.connection import connect
from shared.runtime.keys import Keys
from shared.scaler.decision import Bounds, Decision, Pace, Signals, decide
from shared.scaler.settings import ScalerSettings

BOUNDS = Bounds(min=1, max=6, slots=8, waiting=16, oldest_s=5)
QUIET = Signals(0, 0.0, 0)


@pytest.mark.parametrize(
    ("seen", "replicas", "expected"),
    [
        (QUIET, 1, Decision(1, "steady", 1)),
        (Signals(0, 0.0, 6), 1, Decision(1, "steady", 1)),
        (Signals(0, 0.0, 8), 1, Decision(2, "busy", 2)),  # full to the brim: nothing waits, but the next one will
        (Signals(1, 0.1, 8), 1, Decision(2, "backlog", 2)),
        (Signals(40, 1.0, 8), 1, Decision(4, "backlog", 4)),  # 8/6.4 + 40/16
        (Signals(100_000, 60.0, 8), 1, Decision(6, "backlog", 6)),
        (Signals(1, 6.0, 0), 1, Decision(2, "old", 2)),  # few, but nobody takes them
        (Signals(1, 6.0, 0), 6, Decision(6, "steady", 6)),
        (Signals(3, 1.0, 0), 4, Decision(4, "steady", 1)),  # what waits is worked off first
        (QUIET, 4, Decision(3, "idle", 1)),
        (QUIET, 9, Decision(1, "above_max", 1)),
        (Signals(1000, 9.0, 72), 9, Decision(6, "above_max", 6)),
        (Signals(1000, 9.0, 0), 0, Decision(0, "stopped", 0)),
    ],
)
def test_each_rule(seen: Signals, replicas: int, expected: Decision) -> None:
    assert decide(seen, replicas, BOUNDS) == expected


def test_fewer_than_the_minimum_are_filled_up_at_once() -> None:
    bounds = Bounds(min=3, max=6)
    assert decide(QUIET, 1, bounds, may_grow=False, may_shrink=False) == Decision(3, "below_min", 3)


@pytest.mark.parametrize(("seen", "replicas"), [(Signals(40, 1.0, 8), 1), (QUIET, 4)])
def test_a_cooldown_holds(seen: Signals, replicas: int) -> None:
    decision = decide(seen, replicas, BOUNDS, may_grow=False, may_shrink=False)
    assert (decision.replicas, decision.reason) == (replicas, "cooldown")


def test_growth_pauses_after_growth_and_shrinking_waits_for_lasting_quiet() -> None:
    pace = Pace(BOUNDS, up_after_s=10, down_after_s=60)
    busy = Signals(40, 1.0, 8)
    assert pace.next(busy, 1, 0).replicas == 4
    assert pace.next(Signals(200, 2.0, 32), 4, 5).reason == "cooldown"
    assert pace.next(Signals(200, 2.0, 32), 4, 10).replicas == 6
    assert pace.next(QUIET, 6, 60).reason == "cooldown"
    assert pace.next(Signals(0, 0.0, 38), 6, 65).reason == "steady"  # all six are needed once more
    assert pace.next(QUIET, 6, 124).reason == "cooldown"
    assert pace.next(QUIET, 6, 125) == Decision(5, "idle", 1)
    assert pace.next(QUIET, 5, 184).reason == "cooldown"
    assert pace.next(QUIET, 5, 185).replicas == 4


def test_a_scaler_that_starts_shrinks_nothing_at_its_first_look() -> None:
    pace = Pace(BOUNDS, up_after_s=10, down_after_s=60)
    assert pace.next(QUIET, 4, 1_000_000).reason == "cooldown"
    assert pace.next(QUIET, 4, 1_000_060).replicas == 3


@dataclass
class Load:
    """A service under open-loop arrivals, in virtual time: replicas with slots, one queue, replicas that take time to
    start, and drain when they go."""

    bounds: Bounds
    per_s: float
    work_s: float = 0.2
    start_s: float = 5.0
    seed: int = 0
    queue: deque[float] = field(default_factory=deque)
    in_hand: list[float] = field(default_factory=list)
    ready_at: list[float] = field(default_factory=lambda: [0.0])
    done: int = 0

    def run(self, *, busy_s: float, until_s: float) -> list[tuple[float, int, int]]:
        """Time, replicas and waiting at each look of the scaler."""
        chance, pace = random.Random(self.seed), Pace(self.bounds, up_after_s=10, down_after_s=60)
        arrival, looks, look_at, now = chance.expovariate(self.per_s), [], 0.0, 0.0
        while now < until_s:
            while self.in_hand and self.in_hand[0] <= now:
                heapq.heappop(self.in_hand)
                self.done += 1
            while arrival <= now:
                self.queue.append(arrival)
                arrival += chance.expovariate(self.per_s) if now < busy_s else until_s
            free = sum(at <= now for at in self.ready_at) * self.bounds.slots - len(self.in_hand)
            for _ in range(min(free, len(self.queue))):
                self.queue.popleft()
                heapq.heappush(self.in_hand, now + self.work_s)
            if now >= look_at:
                look_at += 2.0
                seen = Signals(len(self.queue), now - self.queue[0] if self.queue else 0.0, len(self.in_hand))
                wanted = pace.next(seen, len(self.ready_at), now).replicas
                # Newest first; what they have in hand they finish.
                self.ready_at = self.ready_at[:wanted] + [now + self.start_s] * (wanted - len(self.ready_at))
                looks.append((now, wanted, len(self.queue)))
            now += 0.01
        return looks


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [3, 4, 6])
def test_a_minute_of_100_jobs_a_second_is_worked_off_within_the_bounds(seed: int, most: int) -> None:
    """200 ms a job and 8 slots: one replica does 40 a second, so three at least are called for."""
    load = Load(Bounds(min=1, max=most), per_s=100, seed=seed)
    looks = load.run(busy_s=60, until_s=600)
    assert {replicas for _, replicas, _ in looks} <= set(range(1, most + 1))
    assert max(waiting for _, _, waiting in looks) > 100, "without a backlog this shows nothing"
    assert all(waiting == 0 for at, _, waiting in looks if at >= 75)
    assert looks[-1][1:] == (1, 0)
    assert load.done > 5500
    assert (load.queue, load.in_hand) == (deque(), [])


def test_a_steady_load_settles() -> None:
    """Arrivals by chance need 2.5 replicas on average: no back and forth, and nothing ever waits."""
    looks = Load(Bounds(min=1, max=20), per_s=100).run(busy_s=3600, until_s=3600)
    settled = [(replicas, waiting) for at, replicas, waiting in looks if at > 300]
    changes = sum(a != b for (a, _), (b, _) in pairwise(settled))
    assert {replicas for replicas, _ in settled} <= {4, 5, 6}
    assert max(waiting for _, waiting in settled) <= 8
    assert changes <= 40, "more than one in a minute and a half"


def test_bounds_out_of_order_and_unknown_services_are_refused() -> None:
    with pytest.raises(ValidationError, match="min must not exceed max"):
        Bounds(min=3, max=2)
    with pytest.raises(ValidationError, match="no services: reader"):
        ScalerSettings(services={"reader": Bounds()})


async def test_the_default_knows_the_graders_slots() -> None:
    async with open_stage(Common(connect("redis://127.0.0.1:1"), Keys())) as stage:
        assert Bounds().slots == stage.inboxes[0].max_workers
