"""Who asks: the claims of a verified JWT (RFC 7519), through PyJWT."""

from __future__ import annotations

import asyncio
from typing import Any

import jwt
from pydantic import ValidationError

from services.gateway.settings import JwtSettings
from shared.contracts import Principal
from shared.errors import NotAllowed, TransientError
from shared.runtime.delivery import explain


class TokenVerifier:
    """Turns a token into a Principal. Without a configured key every asker is the public tenant's."""

    def __init__(self, settings: JwtSettings) -> None:
        self.settings = settings
        self._jwks = jwt.PyJWKClient(settings.jwks_url, cache_keys=True, timeout=5) if settings.jwks_url else None

    async def principal(self, token: str | None) -> Principal:
        """Raises NotAllowed for a token that is missing, unverifiable or expired, TransientError if JWKS is away."""
        if token is None:
            if self.settings.required:
                raise NotAllowed("token: required here (CAIRN_JWT_REQUIRED)")
            return Principal()
        if not self.settings.configured:
            raise NotAllowed("token: this system verifies no tokens; set CAIRN_JWT_SECRET, _PUBLIC_KEY or _JWKS_URL")
        try:
            return self._principal(self._claims(token, await self._key(token)))
        except jwt.PyJWKClientConnectionError as away:
            raise TransientError(f"the JWKS endpoint can't be reached: {away}") from away
        except jwt.PyJWTError as refused:
            raise NotAllowed(f"token: {refused}") from refused

    async def _key(self, token: str) -> Any:
        settings = self.settings
        if settings.secret is not None:
            return settings.secret.get_secret_value()
        if settings.public_key is not None:
            return settings.public_key
        assert self._jwks is not None
        try:
            return (await asyncio.to_thread(self._jwks.get_signing_key_from_jwt, token)).key
        except ValueError as error:  # a proxy's page instead of the keys
            raise TransientError(f"the JWKS endpoint answered something that is not JSON: {error}") from error

    def _claims(self, token: str, key: Any) -> dict[str, Any]:
        settings = self.settings
        # Never from the token's own header: accepting its choice is the classic way to forge one.
        algorithms = settings.algorithms or (("HS256",) if settings.secret else ("RS256", "ES256"))
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(algorithms),
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.leeway_s,
            options={"require": ["exp"], "verify_aud": settings.audience is not None},
        )
        return claims

    def _principal(self, claims: dict[str, Any]) -> Principal:
        settings = self.settings
        roles = claims.get(settings.roles_claim, ())
        if isinstance(roles, str):  # OAuth's scope style: one string, blanks between
            roles = roles.split()
        try:
            return Principal.model_validate(
                {
                    "subject": claims.get("sub"),
                    "roles": roles,
                    "region": claims.get(settings.region_claim),
                    **({"tenant": claims[settings.tenant_claim]} if settings.tenant_claim in claims else {}),
                }
            )
        except ValidationError as wrong:
            raise NotAllowed(f"token: {explain(wrong)}") from wrong
