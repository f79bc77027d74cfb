"""Both sides of the gateway: an agent's credential in requests, and the agent in a server's requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

import httpx

from . import signing
from .answers import Domain
from .signing import AgentId, Signer

Credential = Callable[[], Mapping[str, str]]
"""Returns the headers of one request."""


def by_key(api_key: str) -> Credential:
    """Shows the agent's API key."""
    return lambda: {"X-API-Key": api_key}


def by_signature(agent_id: AgentId, signer: Signer, domain: Domain) -> Credential:
    """Signs each request as the agent's owner. `Tiergate.signing` names the domain."""
    return lambda: signing.sign(signer, signing.typed_data(domain, agent_id)).headers()


def origin_of(url: httpx.URL | str) -> tuple[str, str, int | None]:
    """Returns scheme, host and port."""
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.host, parsed.port


class _Sent(httpx.Headers):
    """Headers with a part that is sent, but not copied: httpx copies headers into redirects to other origins."""

    def __init__(self, headers: httpx.Headers, sent: Mapping[str, str]) -> None:
        self._sent = httpx.Headers(sent)
        super().__init__([(name, value) for name, value in headers.multi_items() if name not in self._sent])

    @property
    def raw(self) -> list[tuple[bytes, bytes]]:
        return super().raw + self._sent.raw


class GatewayAuth(httpx.Auth):
    """Shows an agent's credential to the gateway of this URL, and to no other origin: `httpx.Client(auth=...)`."""

    def __init__(self, gateway: str, credential: Credential) -> None:
        self._origin = origin_of(gateway)
        self._credential = credential

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        response = yield self._dressed(request)
        # A redirect within the gateway has come without the credential.
        while response.status_code == 401 and response.request is not request:
            request = response.request
            if origin_of(request.url) != self._origin:
                return
            response = yield self._dressed(request)

    def _dressed(self, request: httpx.Request) -> httpx.Request:
        if origin_of(request.url) == self._origin:
            request.headers = _Sent(request.headers, self._credential())
        return request


@dataclass(frozen=True, kw_only=True)
class Agent:
    """The agent that the gateway admitted."""

    agent_id: int
    owner: str
    trust_tier: int
    #: In the token's smallest unit.
    staked_amount: int
    #: True if the request's `Origin` is not the endpoint declared for the key.
    endpoint_mismatch: bool


_HEADERS = {
    "x-agent-id": "[0-9]{1,78}",
    "x-agent-owner": "0x[0-9a-fA-F]{40}",
    "x-agent-tier": "[1-4]",
    "x-agent-staked-amount": "[0-9]{1,78}",
    "x-agent-endpoint-mismatch": "true|false",
}


def agent_of(headers: Mapping[str, str]) -> Agent | None:
    """Reads the gateway's headers; `None` if one is missing, malformed or there twice.

    Believe it only if the gateway alone can reach the server: the headers are not signed.
    """
    values: dict[str, str] = {}
    for name, value in headers.items():
        # A header that is there twice is malformed.
        values[name.lower()] = "" if name.lower() in values else value
    number, owner, tier, stake, mismatch = (
        values.get(name, "") if re.fullmatch(form, values.get(name, "")) else None for name, form in _HEADERS.items()
    )
    if number is None or owner is None or tier is None or stake is None or mismatch is None:
        return None
    return Agent(
        agent_id=int(number),
        owner=owner,
        trust_tier=int(tier),
        staked_amount=int(stake),
        endpoint_mismatch=mismatch == "true",
    )
