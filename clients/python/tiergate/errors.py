"""Errors: one class for each `errorType`, and three of the client's own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Protocol


class TiergateError(Exception):
    """The base of all errors. Its text has the service's sentence, type, status and request id; `said` is the sentence alone."""

    error_type: str | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
        timestamp: int | None = None,
        reason: str | None = None,
        request_id: str | None = None,
        error_type: str | None = None,
    ) -> None:
        self.error_type = error_type or type(self).error_type
        facts = [
            self.error_type or type(self).__name__,
            *([f"status {status}"] if status else []),
            *([f"request {request_id}"] if request_id else []),
        ]
        super().__init__(f"{message} ({', '.join(facts)}; see docs/errors.md)")
        #: The service's sentence, for people.
        self.said = message
        self.status = status
        #: The request's id in the service's log.
        self.request_id = request_id
        self.details = details or {}
        #: Seconds to wait, where the service says so.
        self.retry_after = retry_after
        #: The service's clock in Unix milliseconds, in answers of the service.
        self.timestamp = timestamp
        #: Why a signed request (ERC-8128) was refused.
        self.reason = reason


class Unreachable(TiergateError):
    """No answer arrived."""


class OutcomeUnknown(Unreachable):
    """The request was sent, and no answer arrived that tells if it was carried out.

    A key may have been changed: ask `keys.status`, then rotate. A verification may be charged, a signature spent.
    """


class NotTiergate(TiergateError):
    """The answer does not have the form of the API: the URL is wrong, or a proxy answered.

    Key operations raise it only for answers of 3xx and 4xx, else `OutcomeUnknown`.
    """


class Refused(TiergateError):
    """The service refused the request. Subclasses have the name of their `errorType`; unknown types have none."""

    known: dict[str, type[Refused]] = {}

    def __init_subclass__(cls) -> None:
        cls.error_type = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()
        cls.known[cls.error_type] = cls


class ValidationError(Refused):
    """Body, query, header or HTTP request is malformed: correct `details["field"]`."""


class ReplayDetected(Refused):
    """The nonce was used before: sign again, after `retry_after`. It may answer a request of yours that was carried out.

    With `details["field"]` it is the timestamp that is too old or ahead. Clients correct their clock by that, once.
    """


class InvalidApiKey(Refused):
    """The key is unknown, revoked, rotated out or another agent's."""


class SignatureInvalid(Refused):
    """The signer is not the agent's current owner, or signed another domain."""


class TierBlocked(Refused):
    """The stake is too low: `details["requiredStake"]`."""


class Forbidden(Refused):
    """The gateway's route denies everybody."""


class EndpointMismatch(Refused):
    """`Origin` is not the endpoint declared for the key: rotate with the right one."""


class AgentNotFound(Refused):
    """The agent is not minted."""


class NotFound(Refused):
    """No such path at the API, or no tenant of the gateway has this host."""


class MethodNotAllowed(Refused):
    """Use another method."""


class RequestTimeout(Refused):
    """Head or body took too long to arrive."""


class KeyAlreadyExists(Refused):
    """The agent has a key: rotate, or revoke first."""


class PayloadTooLarge(Refused):
    """The body is too long."""


class RateLimited(Refused):
    """A limit is reached: wait `retry_after` seconds."""


class RequestHeaderFieldsTooLarge(Refused):
    """Request line and headers are too long."""


class InternalError(Refused):
    """The service failed. A key may have been changed: ask `keys.status`."""


class UpstreamError(Refused):
    """The server behind the gateway can't be reached or answers malformed. It may have got the request."""


class RpcError(Refused):
    """The chain can't be read."""


class Overloaded(Refused):
    """The gateway has no room: wait `retry_after` seconds."""


class UpstreamTimeout(Refused):
    """The server behind the gateway is too slow. It may have got the request."""


class LoopDetected(Refused):
    """The request has passed this gateway before: tell the operator."""


class InsufficientDeposit(Refused):
    """Reserved."""


class RelayFailed(Refused):
    """Reserved."""


class Response(Protocol):
    """A response of httpx or requests."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content(self) -> bytes: ...


def parse_json(content: bytes) -> Any:
    """Parses JSON that nests at most 100 deep: eth-account lifts the limit of recursion, and json then exhausts the stack."""
    text, depth, quoted = content.decode(), 0, False
    for match in re.finditer(r'\\.|["\[\]{}]', text, re.DOTALL):
        if match[0] == '"':
            quoted = not quoted
        elif not quoted:
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > 100:
            raise ValueError("it nests too deep")
    return json.loads(text)


def retry_after_of(headers: Mapping[str, str]) -> int | None:
    """Returns the seconds of `Retry-After`. Tiergate never sends a date."""
    text = headers.get("retry-after", "")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """Returns the request's id in the log of the service."""
    text = headers.get("x-request-id", "")
    return text if re.fullmatch("[!-~]{1,128}", text) else None


def error_of(response: Response) -> Refused | None:
    """Reads an error in the contract's form; `None` if the response is something else."""
    if response.status_code < 400:
        return None
    try:
        body = parse_json(response.content)
        message, error_type = body["error"], body["errorType"]
        details, timestamp, reason = body.get("details"), body["timestamp"], body.get("reason")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(message, str) or not isinstance(error_type, str) or type(timestamp) is not int:
        return None
    return Refused.known.get(error_type, Refused)(
        message,
        status=response.status_code,
        details=details if isinstance(details, dict) else None,
        retry_after=retry_after_of(response.headers),
        timestamp=timestamp,
        reason=reason if isinstance(reason, str) else None,
        request_id=request_id_of(response.headers),
        error_type=error_type,
    )


def raise_for_error(response: Response) -> None:
    """Raises the gateway's refusal; the upstream's own answers pass, errors too."""
    if not hasattr(response, "status_code"):
        raise ValueError("this is no response of httpx or requests")
    if error := error_of(response):
        raise error
