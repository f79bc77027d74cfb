"""Typed data (EIP-712) that owners sign."""

from __future__ import annotations

import inspect
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Union

from anyio import to_thread

from . import errors
from .answers import Domain

T = TypeVar("T")

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


Signer = Union[Account, Callable[[TypedData], Union[str, Awaitable[str]]]]
"""An account of eth-account, or a callable, asynchronous if need be, that returns the signature in hex."""

#: Seconds. A service must not get signatures of next year.
_CLOCKS_APART_MAX = 86_400.0
#: Seconds. Closer clocks are no reason to sign again: answers take time.
_CLOCKS_APART_MIN = 1.0


class Clock:
    """The service's clock: this computer's, until a refused timestamp tells another time."""

    _ahead = 0.0

    def now(self) -> float:
        """Returns Unix time in seconds."""
        return time.time() + self._ahead

    def correct(self, error: errors.TiergateError | None) -> bool:
        """Takes the time from an error that refuses a timestamp. True if it is known now: signing again may succeed, once.

        A request beside this one may have been told before. Clocks that are more than a day apart stay so.
        """
        if error is None or error.timestamp is None or not _is_of_time(error):
            return False
        ahead = error.timestamp / 1_000 - time.time()
        if abs(ahead) > _CLOCKS_APART_MAX:
            return False
        if abs(ahead - self._ahead) >= _CLOCKS_APART_MIN:
            self._ahead = ahead
        return True


def _is_of_time(error: errors.TiergateError) -> bool:
    is_timestamp = isinstance(error, errors.ReplayDetected) and error.details.get("field") == "timestamp"
    return is_timestamp or error.reason in ("request_expired", "request_not_yet_valid")


def _fields(text: str) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for kind, name in (field.split() for field in text.split(", "))]


# Not those that the service names: it could name another contract's, and get a signature that is good there.
DOMAIN = {"EIP712Domain": _fields("string name, string version, uint256 chainId, address verifyingContract")}
_OF_KEY = _fields("string service, uint256 agentId, uint256 nonce, uint256 timestamp")
TYPES = {
    "Verification": _fields("uint256 agentId, uint256 nonce, uint256 timestamp"),
    "ProfileRead": _fields("uint256 agentId, uint256 timestamp"),
    "GenerateKey": _OF_KEY,
    "RotateKey": _OF_KEY,
    "RevokeKey": _OF_KEY,
}

Operation = Literal["verify", "profile", "generate", "rotate", "revoke"]
"""A request that an owner signs."""

PRIMARY_TYPES: dict[Operation, tuple[str, ...]] = {
    "verify": ("Verification",),
    "profile": ("ProfileRead",),
    "generate": ("Verification", "GenerateKey"),
    "rotate": ("Verification", "RotateKey"),
    "revoke": ("Verification", "RevokeKey"),
}
"""The type that each is signed as, and its own type at services that have some."""


def decimal(number: AgentId) -> str:
    """Returns a uint256 as the API writes it. The error has no part of it: it may be a key in the wrong place."""
    value = int(number) if re.fullmatch("[0-9]{1,78}", str(number)) else -1
    if not 0 <= value < 2**256:
        raise ValueError("not a uint256")
    return str(value)


def typed_data(
    domain: Domain, agent_id: AgentId, primary_type: str, now: float, service: str | None = None
) -> TypedData:
    """Returns fresh typed data: of this time (Unix seconds), with a random nonce where the type has one. `service` is for
    the types that name it."""
    message: dict[str, Any] = {} if service is None else {"service": service}
    message["agentId"] = decimal(agent_id)
    if primary_type != "ProfileRead":
        message["nonce"] = str(secrets.randbits(256))
    message["timestamp"] = int(now)
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
    """Typed data with a signature that was made elsewhere. Takes a signer's place in every method; good for one request.

    An unused signature is a credential: `repr` does not show it.
    """

    typed_data: TypedData
    signature: str = field(repr=False)

    def body(self) -> dict[str, Any]:
        """Returns the fields of a signed request."""
        message = {name: value for name, value in self.typed_data["message"].items() if name != "service"}
        return {**message, "signature": self.signature}

    def headers(self) -> dict[str, str]:
        """Returns the headers of a request through the gateway."""
        return {f"X-Agent-{name.removeprefix('agent').title()}": str(value) for name, value in self.body().items()}


def sign(signer: Signer, data: TypedData) -> Signed:
    """Has typed data signed. Blocks."""
    signature = _ask(signer, data)
    if isinstance(signature, str):
        return Signed(data, signature)
    if inspect.iscoroutine(signature):
        signature.close()
    raise ValueError("an asynchronous signer needs an asynchronous client")


async def sign_async(signer: Signer, data: TypedData) -> Signed:
    """Has typed data signed. A signer that blocks does so in a thread."""
    if inspect.iscoroutinefunction(signer) or inspect.iscoroutinefunction(getattr(signer, "__call__", None)):
        signature = _ask(signer, data)
    else:
        signature = await in_thread(_ask, signer, data)
    return Signed(data, signature if isinstance(signature, str) else await signature)


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Makes a blocking call without blocking the event loop. One that is cancelled is not waited for."""
    return await to_thread.run_sync(call, *arguments, abandon_on_cancel=True)


def _ask(signer: Signer, data: TypedData) -> str | Awaitable[str]:
    if callable(signer):
        return signer(data)
    if not hasattr(signer, "sign_typed_data"):
        raise ValueError("the signer is neither an account of eth-account, nor callable, nor a Signed")
    signature = signer.sign_typed_data(full_message=dict(data)).signature
    return "0x" + bytes(signature).hex()
