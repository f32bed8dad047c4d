"""cairn:gateway -> admit -> cairn:rewriter"""

from __future__ import annotations

from services.gateway.decision import admission
from services.gateway.tokens import TokenVerifier
from shared.contracts import Ask, Budget, Rewrite


async def admit(ask: Ask, *, verifier: TokenVerifier, default_collection: str, budget: Budget) -> Rewrite:
    """A question becomes a job of whoever its token names. Raises NotAllowed."""
    principal = await verifier.principal(ask.token)
    submitted_at = int(ask.entry_id.partition("-")[0]) / 1000
    return admission(ask, principal, submitted_at=submitted_at, default_collection=default_collection, budget=budget)
