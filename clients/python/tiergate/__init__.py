"""Client of Tiergate: its API, its gateway, and servers behind the gateway."""

from . import errors
from .answers import (
    Domain,
    HeldKey,
    IssuedKey,
    KeyStatus,
    Organization,
    Profile,
    RateLimit,
    Reputation,
    RevokedKey,
    Signing,
    TierTerms,
    Validation,
    Verification,
)
from .client import AsyncTiergate, Tiergate
from .erc8128 import MessageAccount
from .errors import TiergateError, raise_for_error
from .explain import explain
from .gateway import Agent, GatewayAuth, agent_of, agent_problem, by_key, by_message_signature, by_signature
from .kept import KeptKey
from .signing import AgentId, Signed, Signer, TypedData
from .version import VERSION as __version__

__all__ = [
    "Agent",
    "AgentId",
    "AsyncTiergate",
    "Domain",
    "GatewayAuth",
    "HeldKey",
    "IssuedKey",
    "KeptKey",
    "KeyStatus",
    "MessageAccount",
    "Organization",
    "Profile",
    "RateLimit",
    "Reputation",
    "RevokedKey",
    "Signed",
    "Signer",
    "Signing",
    "TierTerms",
    "Tiergate",
    "TiergateError",
    "TypedData",
    "Validation",
    "Verification",
    "__version__",
    "agent_of",
    "agent_problem",
    "by_key",
    "by_message_signature",
    "by_signature",
    "errors",
    "explain",
    "raise_for_error",
]
