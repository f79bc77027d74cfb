"""The helpers for users' own tests do as the real gateway does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import jwt
import pytest
from conftest import GATEWAY, Owned
from test_gateway import ask, server

from tiergate import GatewayAuth, Tiergate, agent_of, by_key, by_signature, errors, raise_for_error
from tiergate.assertion import verify_assertion
from tiergate.testing import FakeGateway, Refusal, agent_headers, signed_assertion

URL = "https://api.example"


def test_headers_of_an_agent_are_those_that_a_server_reads() -> None:
    usual = agent_of(agent_headers())
    assert usual is not None and (usual.agent_id, usual.trust_tier, usual.staked_amount) == (4, 4, 500_000 * 10**18)
    other = agent_of(agent_headers(agent_id=7, trust_tier=2, endpoint_mismatch=True, tier_source="erc20"))
    assert other is not None and (other.agent_id, other.endpoint_mismatch, other.staked_amount) == (7, True, None)
    assert ask(server(), "/me", agent_headers(agent_id=9)).json() == 9


def test_an_assertion_is_taken_by_its_own_keys_alone_and_says_what_was_asked_for() -> None:
    assertion, keys = signed_assertion(agent_id=7, trust_tier=2)
    rules: dict[str, Any] = {"issuer": "https://gate.example", "tenant": "test"}
    found = verify_assertion(assertion, keys, **rules)
    assert (found.agent_id, found.trust_tier) == (7, 2)
    with pytest.raises(jwt.InvalidSignatureError):
        verify_assertion(assertion, signed_assertion()[1], **rules)
    with pytest.raises(jwt.InvalidAudienceError):
        verify_assertion(assertion, keys, issuer="https://gate.example", tenant="other")


def test_a_fake_gateway_refuses_as_it_is_told_and_lets_others_pass_to_the_api(slept: list[float]) -> None:
    gateway = FakeGateway(lambda request: httpx.Response(200, json={"path": request.url.path, "body": request.content.decode()}))
    with httpx.Client(transport=gateway.transport, auth=GatewayAuth(URL, by_key("k"))) as http:
        gateway.refuse("RATE_LIMITED", retry_after=3).refuse("OVERLOADED", retry_after=4)
        answer = http.post(f"{URL}/orders", content="x")
        assert (answer.status_code, answer.json(), slept) == (200, {"path": "/orders", "body": "x"}, [3, 4])
        assert len(gateway.requests) == 3 and answer.headers["x-ratelimit-limit"] == "60"
        gateway.refuse("TIER_BLOCKED", requiredTier=3)
        with pytest.raises(errors.TierBlocked) as blocked:
            raise_for_error(http.get(URL))
        assert blocked.value.details["requiredTier"] == 3
        gateway.refuse("RATE_LIMITED", retry_after=61)
        with pytest.raises(errors.RateLimited) as limited:
            raise_for_error(http.get(URL))
        assert (limited.value.retry_after, limited.value.details["retryAfter"]) == (61, 61)
    keys = ["one", "two"]

    async def rotated() -> int:
        auth = GatewayAuth(URL, by_key(lambda: keys.pop(0)))
        async with httpx.AsyncClient(transport=gateway.refuse("INVALID_API_KEY").transport, auth=auth) as http:
            return (await http.get(URL)).status_code

    assert asyncio.run(rotated()) == 200
    with httpx.Client(transport=gateway.transport) as bare:
        assert bare.get(URL).status_code == 401
    with pytest.raises(ValueError, match="none of INVALID_API_KEY, "):
        gateway.refuse("TEAPOT")  # type: ignore[arg-type]


def test_a_fake_gateway_s_refusals_have_the_fields_and_headers_of_the_real_one_s(
    service: Tiergate, fresh: Callable[[str], Owned]
) -> None:
    agent = fresh("unstaked")
    real: dict[Refusal, Any] = {
        "INVALID_API_KEY": by_key("svc_live_v1_" + "0" * 64),
        "TIER_BLOCKED": by_signature(agent.id, agent.owner, service),
    }
    for error_type, credential in real.items():
        with httpx.Client(auth=GatewayAuth(GATEWAY, credential)) as http:
            theirs = http.get(GATEWAY)
        with httpx.Client(transport=FakeGateway().refuse(error_type).transport, auth=GatewayAuth(URL, by_key("k"))) as http:
            ours = http.get(URL)
        assert (ours.status_code, set(ours.json())) == (theirs.status_code, set(theirs.json()))
        assert set(ours.json()["details"]) <= set(theirs.json()["details"])
        assert set(ours.headers) <= set(theirs.headers)
