"""For users' own tests: the gateway's headers and assertions, and a gateway that refuses when it is told to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import httpx

if TYPE_CHECKING:
    from jwt import PyJWKClient

_OWNER = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"


def agent_headers(
    *,
    agent_id: int = 4,
    owner: str = _OWNER,
    trust_tier: int = 4,
    endpoint_mismatch: bool = False,
    staked_amount: int | None = None,
    tier_source: str | None = None,
) -> dict[str, str]:
    """Returns the headers that the gateway adds to requests of this agent, for requests to a server under test."""
    if staked_amount is None and tier_source is None:
        staked_amount = 500_000 * 10**18
    return {
        "x-agent-id": str(agent_id),
        "x-agent-owner": owner,
        "x-agent-tier": str(trust_tier),
        "x-agent-endpoint-mismatch": str(endpoint_mismatch).lower(),
        **({} if staked_amount is None else {"x-agent-staked-amount": str(staked_amount)}),
        **({} if tier_source is None else {"x-agent-tier-source": tier_source}),
    }


def signed_assertion(
    *,
    agent_id: int = 4,
    owner: str = _OWNER,
    trust_tier: int = 4,
    chain_id: int = 8004,
    registry: str = _OWNER,
    issuer: str = "https://gate.example",
    tenant: str = "test",
) -> tuple[str, PyJWKClient]:
    """Returns an assertion of this agent by a key of this call, and the keys that `verify_assertion` takes. Needs the extra `assertion`."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": "test", "use": "sig", "alg": "ES256"}

    class Keys(jwt.PyJWKClient):
        def fetch_data(self) -> Any:
            return {"keys": [public]}

    now = int(time.time())
    claims = {"iss": issuer, "aud": tenant, "sub": str(agent_id), "owner": owner, "tier": trust_tier, "chain": chain_id}
    claims |= {"registry": registry, "iat": now, "exp": now + 60, "jti": str(time.time_ns())}
    return jwt.encode(claims, key, "ES256", headers={"kid": "test"}), Keys("https://gate.example", cache_jwk_set=False)


_REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "INVALID_API_KEY": (401, {"agentId": None}),
    "TIER_BLOCKED": (403, {"agentId": "4", "currentTier": 1, "requiredTier": 2, "requiredStake": "10000000000000000000000"}),
    "RATE_LIMITED": (429, {"agentId": "4", "tier": 1, "limit": 60, "retryAfter": 1}),
    "RPC_ERROR": (503, {}),
    "OVERLOADED": (503, {}),
}

Refusal = Literal["INVALID_API_KEY", "TIER_BLOCKED", "RATE_LIMITED", "RPC_ERROR", "OVERLOADED"]

_SHOWN = ("x-api-key", "authorization", "x-agent-signature", "signature")


class FakeGateway:
    """A gateway in memory: `httpx.Client(transport=FakeGateway().transport, auth=...)`, and so for `httpx.AsyncClient`.

    `api` answers the requests that pass. Requests without a credential are refused with 401.
    """

    def __init__(self, api: Callable[[httpx.Request], httpx.Response] = lambda _: httpx.Response(200, json={})) -> None:
        self._api = api
        self._refusals: list[httpx.Response] = []
        #: The requests that it got, refused ones too.
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)

    def refuse(self, error_type: Refusal, *, retry_after: int = 1, **details: Any) -> FakeGateway:
        """Refuses the next request; further calls are for those after it. `retry_after`, in seconds, is for 429 and 503."""
        if error_type not in _REFUSALS:
            raise ValueError(f"the refusal is none of {', '.join(_REFUSALS)}")
        self._refusals.append(_refused(error_type, retry_after, details))
        return self

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        # `raw` alone has the credential.
        names = {name.decode().lower() for name, _ in request.headers.raw}
        if not names.intersection(_SHOWN):
            return _refused("INVALID_API_KEY", 1, {})
        if self._refusals:
            return self._refusals.pop(0)
        answer = self._api(request)
        answer.headers.update(_limit(59))
        return answer


def _limit(remaining: int) -> dict[str, str]:
    return {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": str(remaining), "X-Request-Id": "test"}


def _refused(error_type: str, retry_after: int, details: dict[str, Any]) -> httpx.Response:
    status, usual = _REFUSALS[error_type]
    told = usual | ({"retryAfter": retry_after} if status == 429 else {}) | details
    headers = {"X-Request-Id": "test", "Content-Type": "application/json"}
    headers |= _limit(0) if status == 429 else {}
    headers |= {"Retry-After": str(retry_after)} if status >= 429 else {}
    headers |= {"WWW-Authenticate": 'Bearer realm="agents"'} if status == 401 else {}
    body = {"error": "Refused by a test", "errorType": error_type, "details": told, "timestamp": int(time.time() * 1000)}
    return httpx.Response(status, headers=headers, content=json.dumps(body).encode())
