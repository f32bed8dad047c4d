"""cairn:gateway -> admit -> cairn:rewriter"""

from __future__ import annotations

import time
from collections.abc import Callable

from services.gateway.allowance import USED_UP, Allowance
from services.gateway.decision import admission
from services.gateway.tokens import TokenVerifier
from shared.contracts import Ask, Budget, Rewrite


async def admit(
    ask: Ask,
    *,
    verifier: TokenVerifier,
    budget: Budget,
    allowance: Allowance | None = None,
    now: Callable[[], float] = time.time,
) -> Rewrite:
    """A question becomes a job of whoever its token names, with as much of `budget` as its tenant has left today.

    Raises NotAllowed, or Overloaded where too many jobs run.
    """
    if allowance is not None:
        await allowance.check_room()
    principal = await verifier.principal(ask.token)
    granted = budget if allowance is None else await allowance.of(principal.tenant, budget)
    # An entry id may lie in the future (its sender chose it, or the server's clock stepped back): a deadline may not.
    submitted_at = min(int(ask.entry_id.partition("-")[0]) / 1000, now())
    job = admission(ask, principal, submitted_at=submitted_at, budget=granted)
    if not granted.spent or budget.spent:
        return job
    return job.model_copy(update={"header": job.header.updated(degraded=(USED_UP,))})
