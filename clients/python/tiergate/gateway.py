"""Both sides of the gateway: an agent's credential in requests, and the agent in a server's requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

import httpx

from . import signing
from .answers import Domain
from .signing import AgentId, Signer
from .urls import origin_of, parse

Credential = Callable[[], Mapping[str, str]]
"""Returns the headers of one request."""


def by_key(api_key: str) -> Credential:
    """Shows the agent's API key. Blanks around it are removed: files end in one."""
    headers = {"X-API-Key": _sendable("key", api_key)}
    return lambda: headers


def by_signature(agent_id: AgentId, signer: Signer, domain: Domain) -> Credential:
    """Signs each request as the agent's owner. `Tiergate.signing` gives the domain."""

    def credential() -> Mapping[str, str]:
        headers = signing.sign(signer, signing.typed_data(domain, agent_id)).headers()
        return {name: _sendable("signature", value) for name, value in headers.items()}

    return credential


def _sendable(name: str, value: str) -> str:
    # HTTP libraries quote what they can't send.
    if not re.fullmatch("[!-~]+", value.strip()):
        raise ValueError(f"the {name} has characters that no header can have")
    return value.strip()


class _Sent(httpx.Headers):
    """Headers with a part that is sent, but not copied: httpx copies headers into redirects to other origins."""

    def __init__(self, headers: httpx.Headers, sent: Mapping[str, str]) -> None:
        self._sent = httpx.Headers(sent)
        super().__init__([(name, value) for name, value in headers.multi_items() if name not in self._sent])

    @property
    def raw(self) -> list[tuple[bytes, bytes]]:
        return super().raw + self._sent.raw


class GatewayAuth(httpx.Auth):
    """Shows an agent's credential to the gateway of this URL, and to no other origin: `httpx.Client(auth=...)`.

    Of the request's headers only `raw`, which is sent, has the credential: hooks and logs don't see it. Transports that
    copy headers in another way send none.
    """

    def __init__(self, gateway: str, credential: Credential) -> None:
        self._origin = origin_of(parse(gateway))
        self._credential = credential

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        response = yield self._with_credential(request)
        # A redirect within the gateway has come without the credential. Another origin must not choose what it is for.
        while response.status_code == 401 and response.request is not request:
            request = response.request
            if any(origin_of(each.request.url) != self._origin for each in [*response.history, response]):
                return
            response = yield self._with_credential(request)

    def _with_credential(self, request: httpx.Request) -> httpx.Request:
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
