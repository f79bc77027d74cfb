"""Typed data (EIP-712) that owners sign."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, Union

from .answers import Domain

AgentId = Union[int, str]
"""An agent's number; as text in decimal."""

TypedData = TypedDict(
    "TypedData",
    {
        "types": dict[str, list[dict[str, str]]],
        "primaryType": str,
        "domain": dict[str, Any],
        "message": dict[str, Any],
    },
)
"""The argument of `eth_signTypedData_v4`. Ids and nonces are decimal strings: JSON's numbers are too short for them."""


class _SignedMessage(Protocol):
    @property
    def signature(self) -> bytes: ...


class Account(Protocol):
    """An account of eth-account."""

    def sign_typed_data(self, *, full_message: dict[str, Any]) -> _SignedMessage: ...


Signer = Union[Account, Callable[[TypedData], str]]
"""An account of eth-account, or a callable that returns the signature in hex."""


def _fields(text: str) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for kind, name in (field.split() for field in text.split(", "))]


# Not those that the service names: it could name another contract's, and get a signature that is good there.
DOMAIN = {"EIP712Domain": _fields("string name, string version, uint256 chainId, address verifyingContract")}
TYPES = {
    "Verification": _fields("uint256 agentId, uint256 nonce, uint256 timestamp"),
    "ProfileRead": _fields("uint256 agentId, uint256 timestamp"),
}


def decimal(number: AgentId) -> str:
    """Returns a uint256 as the API writes it."""
    value = int(number)
    if not 0 <= value < 2**256:
        raise ValueError("not a uint256")
    return str(value)


def typed_data(domain: Domain, agent_id: AgentId, primary_type: str = "Verification") -> TypedData:
    """Returns fresh typed data: of this second, with a random nonce where the type has one."""
    message: dict[str, Any] = {"agentId": decimal(agent_id)}
    if primary_type == "Verification":
        message["nonce"] = str(secrets.randbits(256))
    message["timestamp"] = int(time.time())
    return {
        "types": {**DOMAIN, primary_type: TYPES[primary_type]},
        "primaryType": primary_type,
        "domain": {
            "name": domain.name,
            "version": domain.version,
            "chainId": domain.chain_id,
            "verifyingContract": domain.verifying_contract,
        },
        "message": message,
    }


@dataclass(frozen=True)
class Signed:
    """Typed data with a signature that was made elsewhere. Takes a signer's place in every method; good for one request."""

    typed_data: TypedData
    signature: str

    def body(self) -> dict[str, Any]:
        """Returns the fields of a signed request."""
        return {**self.typed_data["message"], "signature": self.signature}

    def headers(self) -> dict[str, str]:
        """Returns the headers of a request through the gateway."""
        return {f"X-Agent-{name.removeprefix('agent').title()}": str(value) for name, value in self.body().items()}


def sign(signer: Signer, data: TypedData) -> Signed:
    """Has typed data signed."""
    if callable(signer):
        return Signed(data, signer(data))
    signature = signer.sign_typed_data(full_message=dict(data)).signature
    return Signed(data, "0x" + bytes(signature).hex())
