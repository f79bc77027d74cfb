"""What an error means to a model that called a tool."""

from __future__ import annotations

from . import errors

_CALLER = "Don't repeat the call. Tell your operator"
_ONCE = "Repeat the call once. If it is refused again, tell your operator"
_CHANGE = "Don't repeat the call as it is: correct it, or tell your operator"
_UNSURE = (
    "The call may have been carried out: don't repeat it unless it may happen twice. "
    "If it goes on, tell your operator"
)
_WAIT = "Wait"

#: What happened, and what to do. Clients of both languages say the same: clients/cases.json.
_SENTENCES: dict[type[errors.TiergateError], tuple[str, str]] = {
    errors.ValidationError: ("The request is malformed", _CHANGE),
    errors.ReplayDetected: ("The signature was used before, or is out of time", _ONCE),
    errors.InvalidApiKey: ("The agent's key is not valid", _CALLER),
    errors.SignatureInvalid: ("The agent's signature is not its owner's", _CALLER),
    errors.TierBlocked: ("The agent's tier is too low", _CALLER),
    errors.Forbidden: ("The agent may not call this", _CALLER),
    errors.EndpointMismatch: ("The agent's key is for another application", _CALLER),
    errors.AgentNotFound: ("There is no such agent", _CALLER),
    errors.NotFound: ("There is nothing at this address", _CHANGE),
    errors.MethodNotAllowed: ("The address does not take this method", _CHANGE),
    errors.RequestTimeout: ("The request took too long to arrive", _ONCE),
    errors.KeyAlreadyExists: ("The agent has a key already", _CALLER),
    errors.PayloadTooLarge: ("The request is too large", _CHANGE),
    errors.RateLimited: ("There were too many requests", _WAIT),
    errors.RequestHeaderFieldsTooLarge: ("The request is too large", _CHANGE),
    errors.InternalError: ("The service failed", _UNSURE),
    errors.UpstreamError: ("The API failed", _UNSURE),
    errors.RpcError: ("The service can't check the agent now", _WAIT),
    errors.Overloaded: ("The service is busy", _WAIT),
    errors.UpstreamTimeout: ("The API did not answer in time", _UNSURE),
    errors.LoopDetected: ("The service calls itself", _CALLER),
    errors.InsufficientDeposit: ("The agent's deposit is too small", _CALLER),
    errors.RelayFailed: ("The transaction failed", _UNSURE),
    errors.NotTiergate: ("Something else than the service answered", _UNSURE),
    errors.Unreachable: ("No answer came", _UNSURE),
    errors.OutcomeUnknown: ("No answer came", _UNSURE),
}


def explain(error: BaseException) -> str:
    """Says in a few words what a model can do about an error: wait, correct its call, or tell its operator.

    It has nothing of the error but its type, tiers, seconds to wait, and request id: texts of others are no instructions to a
    model.
    """
    if not isinstance(error, errors.TiergateError):
        return f"The call failed. {_CALLER}."
    what, advice = _SENTENCES.get(type(error), ("The service refused the call", _CALLER))
    if advice == _WAIT:
        wait = 60 if error.retry_after is None else error.retry_after
        return f"{what}. Wait {wait} s, then repeat the call."
    tiers = ""
    current, required = error.details.get("currentTier"), error.details.get("requiredTier")
    if isinstance(error, errors.TierBlocked) and type(current) is int and type(required) is int:
        tiers = f": it is {current}, and {required} is needed"
    request = f", with the request's id {error.request_id}" if error.request_id else ""
    return f"{what}{tiers}. {advice}{request}."
