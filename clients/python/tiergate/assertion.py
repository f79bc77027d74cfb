"""Assertions, for servers behind the gateway that check them instead of believing their network. Needs the extra `assertion`."""

from __future__ import annotations

from dataclasses import dataclass

import jwt
from jwt import PyJWKClient

from .urls import parse

#: How long an assertion may be good for, in seconds.
_LIFE_MAX = 60

#: How far the clocks of gateway and server may be apart, in seconds.
_CLOCK_LEEWAY = 5

_CLAIMS = ["iss", "aud", "sub", "owner", "tier", "chain", "registry", "iat", "exp", "jti"]


@dataclass(frozen=True, kw_only=True)
class Assertion:
    """An agent as the gateway asserts it."""

    agent_id: int
    owner: str
    trust_tier: int
    #: The id of the chain, and the identity registry on it.
    chain_id: int
    registry: str


def assertion_keys(url: str) -> PyJWKClient:
    """The keys at the gateway's `/.well-known/jwks.json`, to be made once.

    They are kept for five minutes, and read again when an assertion names another one, at most every half minute. Reading
    blocks.
    """
    return PyJWKClient(str(parse(url)), lifespan=300, cooldown_duration=30, timeout=5)


def verify_assertion(assertion: str | None, keys: PyJWKClient, *, issuer: str, tenant: str) -> Assertion:
    """Verifies the value of `X-Agent-Assertion`, and raises `jwt.PyJWTError` unless it is this issuer's, for this tenant and of now.

    `issuer` is the gateway's `assertion.issuer`, `tenant` the `id` of the tenant that the server is behind.
    """
    # Without a value PyJWT would not compare it.
    if not issuer or not tenant:
        raise ValueError("an issuer and a tenant are needed")
    if not isinstance(keys, PyJWKClient):
        raise ValueError("the keys are not those of assertion_keys")
    if not assertion:
        raise jwt.InvalidTokenError("there is no assertion")
    # An error of encoding would have it whole.
    if not assertion.isascii():
        raise jwt.InvalidTokenError("it is no token")
    if jwt.get_unverified_header(assertion).get("typ") != "JWT":
        raise jwt.InvalidTokenError("it is a token of another type")
    claims = jwt.decode(
        assertion,
        keys.get_signing_key_from_jwt(assertion),
        algorithms=["ES256"],
        issuer=issuer,
        audience=tenant,
        leeway=_CLOCK_LEEWAY,
        options={"require": _CLAIMS, "strict_aud": True},
    )
    if claims["exp"] - claims["iat"] > _LIFE_MAX:
        raise jwt.InvalidTokenError("the assertion is good for too long")
    return Assertion(
        agent_id=int(claims["sub"]),
        owner=claims["owner"],
        trust_tier=claims["tier"],
        chain_id=claims["chain"],
        registry=claims["registry"],
    )
