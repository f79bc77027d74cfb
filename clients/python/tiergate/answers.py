"""Successful answers of the API, as `/openapi.json` describes them: snake case, and uint256 as `int`."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RateLimit:
    """The most requests of a window, and how many are left."""

    limit: int
    remaining: int


@dataclass(frozen=True, kw_only=True)
class Limited:
    """An answer with the remaining limit."""

    rate_limit: RateLimit | None = None


@dataclass(frozen=True, kw_only=True)
class Reputation:
    #: A whole number, but for agents of ERC-8004.
    total_score: Decimal
    feedback_count: int
    average_rating: float | None
    #: True where there is more feedback than was looked at.
    bounded: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Validation:
    count: int
    latest_passed: bool | None
    #: Text from the chain: untrusted.
    latest_evidence: str | None
    latest_validator: str | None
    #: True where there are more requests than were looked at.
    bounded: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Organization:
    org_id: int
    #: Text from the chain: untrusted.
    name: str
    verified: bool


@dataclass(frozen=True, kw_only=True)
class _Standing(Limited):
    agent_id: int
    owner: str
    trust_tier: int
    reputation: Reputation
    validation: Validation
    #: Text from the chain: untrusted.
    metadata_uri: str
    organizations: tuple[Organization, ...]
    timestamp: int
    #: In the token's smallest unit; None where no stake is read.
    staked_amount: int | None = None
    #: What gave the tier; None where only stakes do.
    tier_source: str | None = None


@dataclass(frozen=True, kw_only=True)
class Verification(_Standing):
    """The agent is verified."""

    valid: Literal[True]
    endpoint_mismatch: bool


@dataclass(frozen=True, kw_only=True)
class HeldKey:
    """One of an agent's keys: what is known of it but the key."""

    name: str | None
    #: In Unix seconds; None where it does not end.
    expires_at: int | None
    #: The ids of the gateway's tenants that it opens; None where it opens all.
    tenants: tuple[str, ...] | None
    #: True if another key has replaced it, and it goes on for its grace.
    replaced: bool
    #: The days in UTC on which it was made, and last used, as "2026-11-28". None where the service keeps none.
    made_on: str | None = None
    last_used_on: str | None = None


@dataclass(frozen=True, kw_only=True)
class Profile(_Standing):
    """The agent as its owner sees it."""

    has_key: bool
    #: The oldest first. Empty at a service that is older than they are.
    keys: tuple[HeldKey, ...] = ()


@dataclass(frozen=True, kw_only=True)
class IssuedKey(Limited):
    """The one answer that shows the key; its `repr` does not."""

    api_key: str = field(repr=False)
    agent_id: int
    message: str
    #: Its terms, as of an agent's other keys.
    name: str | None = None
    expires_at: int | None = None
    tenants: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RevokedKey(Limited):
    success: Literal[True]
    agent_id: int


@dataclass(frozen=True, kw_only=True)
class KeyStatus(Limited):
    """`rate_limit` is what key management has left."""

    has_key: bool
    agent_id: int


@dataclass(frozen=True, kw_only=True)
class Domain:
    """The EIP-712 domain of owners' signatures."""

    name: str
    version: str
    chain_id: int
    verifying_contract: str


@dataclass(frozen=True, kw_only=True)
class TierTerms:
    tier: int
    name: str
    #: In the token's smallest unit.
    #: None where no stake gives the tier.
    stake: int | None
    requests_per_minute: int


@dataclass(frozen=True, kw_only=True)
class KeyOperations:
    """The types of changes of keys, and the service's name in them."""

    service: str
    generate: dict[str, Any]
    rotate: dict[str, Any]
    revoke: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Signing:
    """How owners sign for this service, and its tiers."""

    domain: Domain
    types: dict[str, Any]
    primary_type: str
    timestamp_max_age: int
    timestamp_max_ahead: int
    tiers: tuple[TierTerms, ...]
    token_decimals: int
    contract_signatures: bool
    #: What gives agents their tiers. This and the next one are None at a service that is older than they are.
    tier_source: str | None = None
    #: True if the agent's own wallet may sign as its owner does.
    agent_wallet: bool | None = None
    #: None where changes of keys are signed as verifications are.
    key_operations: KeyOperations | None = None
    #: The chain of the registries. This and what follows are None at a service that is older than they are.
    chain_id: int | None = None
    #: The registries by their names.
    contracts: dict[str, Any] | None = None
    #: The staked token, where the operator names it.
    token: str | None = None
    #: Where owners make keys, where the operator names it.
    keys_url: str | None = None
    console_url: str | None = None
    gateway_url: str | None = None
    #: The service's version.
    version: str | None = None


def json_name(name: str) -> str:
    """Returns a field's name in JSON."""
    camel = re.sub("_(.)", lambda letter: letter[1].upper(), name)
    return camel.removesuffix("Uri") + "URI" if camel.endswith("Uri") else camel


def read(kind: type[T], value: Any, name: str = "body") -> T:
    """Reads JSON as a dataclass. Raises ValueError that names the wrong field."""
    return typing.cast(T, _read(kind, value, name))


def _read(kind: Any, value: Any, name: str) -> Any:
    arguments = typing.get_args(kind)
    match typing.get_origin(kind):
        case types.UnionType:
            return None if value is None else _read(arguments[0], value, name)
        case typing.Literal if value is arguments[0]:
            return value
        case builtin if builtin is tuple and isinstance(value, list):
            return tuple(_read(arguments[0], item, name) for item in value)
        case builtin if builtin is dict and isinstance(value, dict):
            return value
    if kind is int and isinstance(value, str) and re.fullmatch("-?[0-9]{1,78}", value):
        return int(value)
    if kind is Decimal and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,78}(\.[0-9]{1,18})?", value):
        return Decimal(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind:
        return value
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints, fields = typing.get_type_hints(kind), {}
        for each in dataclasses.fields(kind):
            key = json_name(each.name)
            if key in value:
                fields[each.name] = _read(hints[each.name], value[key], key)
            elif each.default is dataclasses.MISSING:
                raise ValueError(f"{key} is missing")
        return kind(**fields)
    raise ValueError(f"{name} is not as documented")
