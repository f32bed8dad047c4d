"""cairn:gateway -> admit -> cairn:rewriter"""

from __future__ import annotations

import time
from collections.abc import Callable

from services.gateway.decision import admission
from services.gateway.tokens import TokenVerifier
from shared.contracts import Ask, Budget, Rewrite


async def admit(
    ask: Ask,
    *,
    verifier: TokenVerifier,
    default_collection: str,
    budget: Budget,
    now: Callable[[], float] = time.time,
) -> Rewrite:
    """A question becomes a job of whoever its token names. Raises NotAllowed."""
    principal = await verifier.principal(ask.token)
    # An entry id may lie in the future (its sender chose it, or the server's clock stepped back): a deadline may not.
    submitted_at = min(int(ask.entry_id.partition("-")[0]) / 1000, now())
    return admission(ask, principal, submitted_at=submitted_at, default_collection=default_collection, budget=budget)
