"""What a tenant's day leaves of a job's budget."""

from __future__ import annotations

import pytest

from services.gateway.allowance import DailyLimits
from shared.contracts import Budget

JOB = Budget(model_calls=60, tokens=1000)


@pytest.mark.parametrize(
    ("limits", "spent", "left"),
    [
        (DailyLimits(), {"calls": 10**9, "tokens": 10**9, "cost": 1e9}, JOB),
        (DailyLimits(calls=100), {}, JOB),
        (DailyLimits(calls=100), {"calls": 70}, Budget(model_calls=30, tokens=1000)),
        (DailyLimits(calls=100), {"calls": 170}, Budget(model_calls=0, tokens=1000)),
        (DailyLimits(tokens=500), {"tokens": 100}, Budget(model_calls=60, tokens=400)),
        (DailyLimits(cost=2.0), {"cost": 0.5}, Budget(model_calls=60, tokens=1000, cost=1.5)),
        (DailyLimits(cost=2.0), {"cost": 2.5}, Budget(model_calls=60, tokens=1000, cost=0.0)),
    ],
)
def test_a_job_gets_what_the_day_still_has(limits: DailyLimits, spent: dict[str, float], left: Budget) -> None:
    assert limits.left(JOB, spent) == left


def test_the_smaller_bound_on_cost_holds() -> None:
    assert DailyLimits(cost=2.0).left(Budget(cost=0.1), {}).cost == 0.1
    assert DailyLimits(cost=2.0).left(Budget(cost=5.0), {}).cost == 2.0


@pytest.mark.parametrize("budget", [Budget(model_calls=0), Budget(tokens=0), Budget(cost=0.0)])
def test_a_budget_is_spent_when_any_part_of_it_is(budget: Budget) -> None:
    assert budget.spent
    assert not JOB.spent
