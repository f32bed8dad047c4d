"""Whose a token is, and which tokens are nobody's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from services.gateway.settings import JwtSettings
from services.gateway.tokens import TokenVerifier
from shared.contracts import Principal
from shared.errors import NotAllowed, TransientError
from tests.support.mock_web_search import MockWebSearch, Reply

SECRET = "a secret of at least thirty-two bytes"
OTHER_SECRET = "another one of at least thirty-two bytes"


@cache
def rsa_key(name: str = "ours") -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    """Its public half, as an operator would set it."""
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def claims(**fields: Any) -> dict[str, Any]:
    return {"exp": int(time.time()) + 300, "sub": "u-1", **fields}


def signed(payload: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> str:
    return jwt.encode(payload, key, algorithm=algorithm, headers=headers)


def by_hand(header: Any, payload: Any, key: bytes | None = None) -> str:
    """A token with any header at all, HMAC-SHA256 signed or with an empty signature."""
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, payload))
    signature = hmac.new(key, head + b"." + body, hashlib.sha256).digest() if key is not None else b""
    return b".".join((head, body, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


def verifier(**fields: Any) -> TokenVerifier:
    return TokenVerifier(JwtSettings(**(fields or {"secret": SECRET})))


async def refusal(token: str | None, **fields: Any) -> str:
    with pytest.raises(NotAllowed) as refused:
        await verifier(**fields).principal(token)
    assert str(refused.value).startswith("token: ")
    return str(refused.value)


# --- who may come without one --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"leeway_s": 5.0}, {"secret": SECRET}])
async def test_without_a_token_everybody_is_the_public(fields: dict[str, Any]) -> None:
    assert await verifier(**fields).principal(None) == Principal()


async def test_a_required_token_is_asked_for() -> None:
    assert "CAIRN_JWT_REQUIRED" in await refusal(None, secret=SECRET, required=True)
    assert await verifier(secret=SECRET, required=True).principal(signed(claims())) == Principal(subject="u-1")


async def test_a_token_that_cannot_be_verified_is_not_ignored() -> None:
    assert "CAIRN_JWT_SECRET" in await refusal(signed(claims()), leeway_s=5.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"required": True},
        {"secret": SECRET, "public_key": "x"},
        {"secret": SECRET, "jwks_url": "http://127.0.0.1/"},
        {"public_key": "x", "jwks_url": "http://127.0.0.1/"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="CAIRN_JWT_"):
        JwtSettings(**fields)


# --- good tokens ---------------------------------------------------------------------------------------------------


async def test_a_shared_secret() -> None:
    token = signed(claims(tenant="acme", roles=["staff", "eu"], region="fr"))
    assert await verifier().principal(token) == Principal(
        tenant="acme", subject="u-1", roles=("staff", "eu"), region="fr"
    )


@pytest.mark.parametrize(("key", "algorithm"), [(rsa_key, "RS256"), (ec_key, "ES256")])
async def test_a_public_key(key: Any, algorithm: str) -> None:
    token = signed(claims(tenant="acme"), key(), algorithm)
    assert (await verifier(public_key=pem(key())).principal(token)).tenant == "acme"


async def test_the_claims_names_are_settings() -> None:
    token = signed(claims(org="acme", scope="read write", zone="eu", tenant="decoy", roles=["decoy"]))
    found = await verifier(secret=SECRET, tenant_claim="org", roles_claim="scope", region_claim="zone").principal(token)
    assert found == Principal(tenant="acme", subject="u-1", roles=("read", "write"), region="eu")


GOOD_ROLES = [
    pytest.param({"roles": ["a", "b"]}, ("a", "b"), id="list"),
    pytest.param({"roles": "a b  c"}, ("a", "b", "c"), id="string, as in OAuth"),
    pytest.param({"roles": ""}, (), id="empty string"),
    pytest.param({"roles": []}, (), id="empty list"),
    pytest.param({}, (), id="no claim"),
    pytest.param({"roles": ["équipe рус"]}, ("équipe рус",), id="any script, blanks in a list's role"),
]


@pytest.mark.parametrize(("fields", "roles"), GOOD_ROLES)
async def test_roles(fields: dict[str, Any], roles: tuple[str, ...]) -> None:
    assert (await verifier().principal(signed(claims(**fields)))).roles == roles


BAD_CLAIMS = [
    pytest.param({"roles": 7}, "roles", id="roles are a number"),
    pytest.param({"roles": {"admin": True}}, "roles", id="roles are an object"),
    pytest.param({"roles": [7]}, "roles", id="a role is a number"),
    pytest.param({"roles": [["admin"]]}, "roles", id="a role is a list"),
    pytest.param({"roles": [" "]}, "roles", id="a role is blank"),
    pytest.param({"roles": ["x" * 65]}, "roles", id="a role is long"),
    pytest.param({"tenant": ""}, "tenant", id="empty tenant"),
    pytest.param({"tenant": None}, "tenant", id="null tenant is not the public one"),
    pytest.param({"tenant": ["acme"]}, "tenant", id="tenants"),
    pytest.param({"tenant": "a/../b"}, "tenant", id="hostile tenant"),
    pytest.param({"tenant": "x" * 65}, "tenant", id="long tenant"),
    pytest.param({"region": 7}, "region", id="region is a number"),
]


@pytest.mark.parametrize(("fields", "named"), BAD_CLAIMS)
async def test_a_claim_of_the_wrong_shape_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    assert named in await refusal(signed(claims(**fields)))


# --- bad tokens ----------------------------------------------------------------------------------------------------


async def test_expiry_has_a_leeway_and_is_then_final() -> None:
    now = int(time.time())
    assert await verifier(secret=SECRET, leeway_s=60).principal(signed(claims(exp=now - 30)))
    assert "expired" in await refusal(signed(claims(exp=now - 30)), secret=SECRET, leeway_s=0)
    assert "expired" in await refusal(signed(claims(exp=now - 90)), secret=SECRET, leeway_s=60)


@pytest.mark.parametrize("exp", ["tomorrow", [], {}])
async def test_an_expiry_that_is_no_number_is_refused(exp: Any) -> None:
    await refusal(by_hand({"alg": "HS256", "typ": "JWT"}, {"exp": exp}, SECRET.encode()))


async def test_a_token_that_never_expires_is_refused() -> None:
    assert "exp" in await refusal(signed({"sub": "u-1"}))


async def test_a_token_from_the_future_is_refused() -> None:
    await refusal(signed(claims(nbf=int(time.time()) + 120)))


@pytest.mark.parametrize(("audience", "accepted"), [("cairn", True), (["other", "cairn"], True), ("other", False)])
async def test_the_audience(audience: Any, accepted: bool) -> None:
    token = signed(claims(aud=audience))
    if accepted:
        assert await verifier(secret=SECRET, audience="cairn").principal(token)
    else:
        assert "udience" in await refusal(token, secret=SECRET, audience="cairn")


async def test_a_token_of_no_audience_is_refused_where_one_is_expected() -> None:
    assert "aud" in await refusal(signed(claims()), secret=SECRET, audience="cairn")


async def test_an_audience_does_not_matter_where_none_is_expected() -> None:
    assert await verifier().principal(signed(claims(aud="other")))


async def test_the_issuer() -> None:
    assert await verifier(secret=SECRET, issuer="https://id.example").principal(
        signed(claims(iss="https://id.example"))
    )
    assert "ssuer" in await refusal(
        signed(claims(iss="https://evil.example")), secret=SECRET, issuer="https://id.example"
    )
    assert "iss" in await refusal(signed(claims()), secret=SECRET, issuer="https://id.example")


async def test_another_key_is_refused() -> None:
    assert "ignature" in await refusal(signed(claims(), OTHER_SECRET))
    assert "ignature" in await refusal(signed(claims(), rsa_key("other"), "RS256"), public_key=pem(rsa_key()))


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", ""])
@pytest.mark.parametrize("source", ["secret", "public_key"])
async def test_an_unsigned_token_is_refused(alg: str, source: str) -> None:
    fields = {"secret": SECRET} if source == "secret" else {"public_key": pem(rsa_key())}
    await refusal(by_hand({"alg": alg, "typ": "JWT"}, claims(tenant="acme")), **fields)


async def test_a_public_key_is_no_shared_secret() -> None:
    """The confusion attack: HS256, with the published key as its secret."""
    public = pem(rsa_key())
    for key in (public, public.strip(), public + "\n"):
        await refusal(by_hand({"alg": "HS256", "typ": "JWT"}, claims(tenant="acme"), key.encode()), public_key=public)


async def test_the_accepted_algorithms_are_settings() -> None:
    token = signed(claims(), SECRET * 2, "HS512")
    assert "alg" in await refusal(token, secret=SECRET * 2)
    assert await verifier(secret=SECRET * 2, algorithms=("HS512",)).principal(token)


async def test_a_changed_claim_breaks_the_signature() -> None:
    mine, theirs = signed(claims(tenant="acme")).split("."), signed(claims(tenant="globex")).split(".")
    await refusal(".".join((mine[0], theirs[1], mine[2])))


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


HOSTILE = [
    pytest.param("", id="empty"),
    pytest.param(".", id="dot"),
    pytest.param("..", id="dots"),
    pytest.param("a.b.c", id="no base64"),
    pytest.param("Bearer x.y.z", id="with its scheme"),
    pytest.param("é.é.é", id="not ASCII"),
    pytest.param(by_hand("header", {}), id="header is a string"),
    pytest.param(by_hand(["HS256"], {}), id="header is a list"),
    pytest.param(by_hand({"alg": ["HS256"]}, {}, b"x"), id="algorithm is a list"),
    pytest.param(by_hand({"alg": {}}, {}, b"x"), id="algorithm is an object"),
    pytest.param(by_hand({"alg": "HS256", "crit": ["b64"], "b64": False}, {}, b"x"), id="critical header"),
    pytest.param(by_hand({"alg": "HS256"}, [], SECRET.encode()), id="claims are a list"),
    pytest.param(by_hand({"alg": "HS256"}, {"exp": 1e400}, SECRET.encode()), id="expiry is infinite"),
    pytest.param(_encoded("[" * 12_000) + ".e30.", id="deep header"),
    pytest.param(_encoded('{"alg":' * 1_700) + ".e30.", id="deep header of objects"),
]


@pytest.mark.parametrize("token", HOSTILE)
@pytest.mark.parametrize("source", ["secret", "public_key"])
async def test_a_hostile_token_is_refused_and_breaks_nothing(token: str, source: str) -> None:
    await refusal(token, **({"secret": SECRET} if source == "secret" else {"public_key": pem(rsa_key())}))


_parts = st.text(max_size=12) | st.binary(max_size=30).map(lambda raw: base64.urlsafe_b64encode(raw).decode())


@settings(deadline=None)
@given(token=st.text(max_size=60) | st.lists(_parts, min_size=2, max_size=5).map(".".join))
async def test_no_text_is_a_token_by_chance(token: str) -> None:
    with pytest.raises(NotAllowed):
        await verifier().principal(token)


# --- JWKS ----------------------------------------------------------------------------------------------------------


def jwks(*names: str) -> dict[str, Any]:
    """A key set with the named keys, each of its own id."""
    keys: Sequence[dict[str, Any]] = [
        jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(name).public_key(), as_dict=True) for name in names
    ]
    return {"keys": [{**key, "kid": name, "use": "sig"} for key, name in zip(keys, names, strict=True)]}


async def test_a_key_from_the_set_is_found_by_its_id_and_kept() -> None:
    async with MockWebSearch(Reply(jwks("ours", "other"))) as site:
        checks = verifier(jwks_url=f"{site.base_url}/jwks.json")
        for name in ("ours", "other", "ours"):
            token = signed(claims(tenant="acme"), rsa_key(name), "RS256", kid=name)
            assert (await checks.principal(token)).tenant == "acme"
    assert [asked.path for asked in site.asked] == ["/jwks.json"]


async def test_keys_of_the_set_are_not_interchangeable() -> None:
    async with MockWebSearch(Reply(jwks("ours", "other"))) as site:
        await refusal(signed(claims(), rsa_key("other"), "RS256", kid="ours"), jwks_url=site.base_url)


@pytest.mark.parametrize("headers", [{"kid": "unknown"}, {"kid": ""}, {}])
async def test_a_key_that_the_set_does_not_hold_is_refused(headers: dict[str, Any]) -> None:
    async with MockWebSearch(Reply(jwks("ours"))) as site:
        await refusal(signed(claims(), rsa_key(), "RS256", **headers), jwks_url=site.base_url)


async def test_a_token_does_not_choose_the_algorithm_of_a_set() -> None:
    async with MockWebSearch(Reply(jwks("ours"))) as site:
        forged = by_hand({"alg": "HS256", "kid": "ours"}, claims(), pem(rsa_key()).encode())
        unsigned = by_hand({"alg": "none", "kid": "ours"}, claims())
        for token in (forged, unsigned):
            await refusal(token, jwks_url=site.base_url)


async def test_a_token_does_not_choose_where_its_key_comes_from() -> None:
    async with MockWebSearch(Reply(jwks("ours"))) as site, MockWebSearch(Reply(jwks("evil"))) as evil:
        headers = {"kid": "evil", "jku": evil.base_url, "jwk": jwks("evil")["keys"][0], "x5u": evil.base_url}
        await refusal(signed(claims(), rsa_key("evil"), "RS256", **headers), jwks_url=site.base_url)
    assert evil.asked == []


@pytest.mark.parametrize("token", HOSTILE)
async def test_a_hostile_token_breaks_nothing_with_a_set_either(token: str) -> None:
    async with MockWebSearch(Reply(jwks("ours"))) as site:
        await refusal(token, jwks_url=site.base_url)


AWAY = [
    pytest.param({"body": b"", "status": 500}, id="500"),
    pytest.param({"body": b"", "status": 503}, id="503"),
    pytest.param({"body": b"", "cut": True}, id="cut before the head"),
    pytest.param({"body": b'{"keys":', "headers": {"Content-Length": "500"}}, id="cut in the body"),
    pytest.param({"body": b"<html>please wait</html>"}, id="HTML"),
    pytest.param({"body": b""}, id="empty"),
    pytest.param({"body": b"\xff\xfe"}, id="binary"),
]


@pytest.mark.parametrize("site_fields", AWAY)
async def test_a_set_that_cannot_be_read_is_worth_another_try(site_fields: dict[str, Any]) -> None:
    token = signed(claims(), rsa_key(), "RS256", kid="ours")
    async with MockWebSearch(Reply(**site_fields)) as site:
        with pytest.raises(TransientError, match="JWKS"):
            await verifier(jwks_url=site.base_url).principal(token)


async def test_a_set_whose_server_is_down_is_worth_another_try_until_it_is_back() -> None:
    token = signed(claims(), rsa_key(), "RS256", kid="ours")
    async with MockWebSearch(Reply(jwks("ours"))) as site:
        gone = site.base_url
    with pytest.raises(TransientError, match="JWKS"):
        await verifier(jwks_url=gone).principal(token)
