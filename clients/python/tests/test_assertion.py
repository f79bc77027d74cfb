"""Assertions of the real gateway, and others that must be refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import httpx
import jwt
import pytest
from conftest import FACTS, GATEWAY, Owned, Script, _serve
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from jwt.algorithms import ECAlgorithm

from tiergate import GatewayAuth, Tiergate, by_key
from tiergate.assertion import Assertion, assertion_keys, verify_assertion

_LOADED = load_pem_private_key(FACTS["signing"].encode(), None)
assert isinstance(_LOADED, ec.EllipticCurvePrivateKey)
KEY: ec.EllipticCurvePrivateKey = _LOADED
KEYS = assertion_keys(FACTS["jwks"])
KEYS.timeout = 60
KID = KEYS.get_signing_keys()[0].key_id
OTHER = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def asserted() -> Iterator[Script]:
    """The server behind `/asserted`."""
    host, port = FACTS["asserted"].rsplit(":", 1)
    yield from _serve(int(port), host)


def verified(assertion: str | None, **change: Any) -> Assertion:
    rules: dict[str, Any] = {"keys": KEYS, "issuer": FACTS["issuer"], "tenant": "wide"}
    return verify_assertion(assertion, **(rules | change))


def refused(assertion: str | None, error: type[jwt.PyJWTError] = jwt.InvalidTokenError, **change: Any) -> None:
    with pytest.raises(error):
        verified(assertion, **change)


def claims(**change: Any) -> dict[str, Any]:
    now = int(time.time())
    right = {"iss": FACTS["issuer"], "aud": "wide", "sub": "4", "owner": "0x" + "aA" * 20, "tier": 3, "chain": 8004}
    right |= {"registry": FACTS["registry"], "iat": now, "exp": now + 60, "jti": "x"}
    return {name: value for name, value in (right | change).items() if value is not None}


def forged(key: ec.EllipticCurvePrivateKey = KEY, kid: str | None = KID, **change: Any) -> str:
    """An assertion that is right but for what is changed."""
    return jwt.encode(claims(**change), key, "ES256", headers={"kid": kid} if kid else {})


def part(of: dict[str, Any] | bytes) -> str:
    text = of if isinstance(of, bytes) else json.dumps(of).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def test_an_assertion_of_the_gateway_says_who_calls(
    service: Tiergate, fresh: Callable[[str], Owned], asserted: Script
) -> None:
    agent = fresh("diamond")
    auth = GatewayAuth(GATEWAY, by_key(service.keys.generate(agent.id, agent.owner).api_key))
    asserted.answers = [(200, {}, b"")]
    url = f"{GATEWAY}/asserted"
    assert httpx.get(url, auth=auth, headers={"X-Agent-Assertion": "a.b.c"}).status_code == 200
    real = asserted.seen[0][2]["x-agent-assertion"]
    expected = {"agent_id": agent.id, "owner": agent.owner.address, "trust_tier": 4, "chain_id": claims()["chain"]}
    assert asdict(verified(real)) == expected | {"registry": FACTS["registry"]}
    refused(real, tenant="narrow")
    refused(real, issuer="https://other.example")
    assert verified(forged()).agent_id == 4, "what is changed below is right without the change"


def test_expired_ones_and_those_of_the_future_or_for_too_long_are_refused() -> None:
    for iat, exp in [(-70, -10), (40, 100), (0, 61), (-70, 10), (0, None), (None, 0)]:
        now = int(time.time())
        refused(forged(iat=None if iat is None else now + iat, exp=None if exp is None else now + exp))
    now = int(time.time())
    verified(forged(iat=now - 60, exp=now))


def test_those_of_another_tenant_or_issuer_are_refused() -> None:
    for change in ({"aud": "narrow"}, {"aud": ["wide", "narrow"]}, {"aud": None}, {"iss": "x"}, {"iss": None}, {"sub": None}):
        refused(forged(**change))
    for lacking in ({"tenant": ""}, {"issuer": ""}):
        with pytest.raises(ValueError, match="needed"):
            verified(forged(), **lacking)


def test_those_without_a_signature_or_of_another_algorithm_or_key_are_refused() -> None:
    payload = part(claims())

    def headed(algorithm: str) -> str:
        return part({"alg": algorithm, "typ": "JWT", "kid": KID}) + "." + payload

    public = KEY.public_key()
    for assertion in (None, "", "a.b.c"):
        refused(assertion)
    refused(headed("none") + ".", jwt.InvalidAlgorithmError)
    refused(headed("ES256") + ".", jwt.InvalidSignatureError)
    for secret in (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    ):
        message = headed("HS256")
        refused(message + "." + part(hmac.digest(secret, message.encode(), hashlib.sha256)), jwt.InvalidAlgorithmError)
    refused(forged(OTHER), jwt.InvalidSignatureError)
    for unknown in ("other", None):
        refused(forged(OTHER, unknown), jwt.PyJWKClientError)


def test_those_of_a_key_that_was_rotated_out_are_refused(script: Script) -> None:
    def published(key: ec.EllipticCurvePrivateKey, kid: str | None) -> dict[str, Any]:
        jwk = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return jwk | {"use": "sig", "alg": "ES256", "kid": kid}

    keys = [published(KEY, KID), published(OTHER, "second")]
    script.answers = [(200, {}, json.dumps({"keys": each}).encode()) for each in (keys, keys[1:])]
    rotating = assertion_keys(script.url)
    rotating.timeout = 60
    older, newer = forged(), forged(OTHER, "second")
    for either in (older, newer):
        verified(either, keys=rotating)
    assert len(script.seen) == 1, "keys are kept"
    rotating.get_jwk_set(refresh=True)
    verified(newer, keys=rotating)
    refused(older, jwt.PyJWKClientError, keys=rotating)
