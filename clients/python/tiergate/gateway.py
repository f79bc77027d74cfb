"""Both sides of the gateway: an agent's credential in requests, and the agent in a server's requests."""

from __future__ import annotations

import inspect
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Union

import anyio
import httpx
from anyio.lowlevel import RunVar

from . import erc8128, errors, libraries, signing
from .answers import Domain
from .client import AsyncTiergate, Tiergate
from .erc8128 import Coverage, MessageAccount, Outgoing
from .kept import KeptKey, read_secret
from .retry import REFUSED_FOR_NOW, Patience, check_numbers
from .signing import AgentId, Clock, Signed, Signer, TypedData
from .urls import origin_of, parse_for_secrets
from .version import LOGGER, USER_AGENT


class Credential(ABC):
    """Shows an agent in the headers of requests. Each request gets its own."""

    #: True if the gateway judges the time of what is shown.
    is_timed = False

    @abstractmethod
    def headers(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        """Returns the headers of one request, which show what was asked for before. May block."""

    async def headers_async(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        """The same without blocking the event loop."""
        return self.headers(request, asked)

    def correct_clock(self, error: errors.TiergateError | None) -> bool:
        """Takes the gateway's time from a refusal. True if another request may succeed for that."""
        return False

    def asked(self, challenge: str, request: Outgoing) -> Coverage | None:
        """Returns what an `Accept-Signature` asks for, if another request may succeed with it."""
        return None

    def renew(self, shown: Mapping[str, str]) -> bool:
        """Asks once more for a key that was refused. True if it is another now. May block."""
        return False

    async def renew_async(self, shown: Mapping[str, str]) -> bool:
        """The same without blocking the event loop."""
        return False


KeySource = Union[str, Path, KeptKey, Callable[[], Union[str, Awaitable[str]]]]
"""An agent's key; or its file; or one that is replaced before it ends; or a callable that gets it, asynchronous if need be."""


class _Key(Credential):
    def __init__(self, source: KeySource, bearer: bool) -> None:
        if not isinstance(source, (str, Path, KeptKey)) and not callable(source):
            raise ValueError("the key is neither text, nor a Path, nor callable")
        self._source, self._bearer = source, bearer
        self._kept = _sendable("key", source) if isinstance(source, str) else None
        self._lock = threading.Lock()
        #: Each event loop has its own: a lock is not for two.
        self._turn: RunVar[anyio.Lock] = RunVar(f"tiergate key {id(self)}")
        #: How many asynchronous asks have ended, and the failure of the last one.
        self._asked = 0
        self._trouble: Exception | None = None

    def headers(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        with self._lock:
            self._kept = self._current() or self._ask()
        return self._shown(self._kept)

    async def headers_async(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        if isinstance(self._source, KeptKey):
            self._kept = await self._ask_async()
            return self._shown(self._kept)
        return self._shown(self._kept or await self._ask_together(None))

    def renew(self, shown: Mapping[str, str]) -> bool:
        try:
            with self._lock:
                # Another request may have asked since.
                if self._kept is None or self._shown(self._kept) == shown:
                    self._kept = self._ask(self._kept)
                return self._shown(self._kept) != shown
        except Exception as error:
            return self._is_lost(error)

    async def renew_async(self, shown: Mapping[str, str]) -> bool:
        try:
            return self._shown(await self._ask_together(shown)) != shown
        except Exception as error:
            return self._is_lost(error)

    @staticmethod
    def _is_lost(error: Exception) -> bool:
        """The caller gets the gateway's refusal. The error's text may have a part of the key."""
        LOGGER.warning("the gateway refused the key, and it can't be read again: %s", type(error).__name__)
        return False

    async def _ask_together(self, refused: Mapping[str, str] | None) -> str:
        """Returns a key that was not refused as this one, if there is another. Requests that come meanwhile share the ask."""
        asked, turn = self._asked, self._turn.get(None) or anyio.Lock()
        self._turn.set(turn)
        async with turn:
            if self._kept is not None and self._shown(self._kept) != refused:
                return self._kept
            if self._asked != asked and self._trouble is not None:
                raise self._trouble
            self._trouble = None
            try:
                self._kept = await self._ask_async(self._kept)
            except Exception as error:
                self._trouble = error
                raise
            finally:
                self._asked += 1
            return self._kept

    def _current(self) -> str | None:
        """The key that came last, unless it may be another in each request."""
        return None if isinstance(self._source, KeptKey) else self._kept

    def _ask(self, refused: str | None = None) -> str:
        key = self._source
        if isinstance(key, Path):
            return _sendable("key in the file", read_secret(key))
        if isinstance(key, KeptKey):
            return _sendable("key", key.current(refused))
        found = key if isinstance(key, str) else key()
        if inspect.iscoroutine(found):
            found.close()
            raise ValueError("an asynchronous source of a key needs an asynchronous client")
        return _sendable("key", found)

    async def _ask_async(self, refused: str | None = None) -> str:
        source = self._source
        if inspect.iscoroutinefunction(source) or inspect.iscoroutinefunction(getattr(source, "__call__", None)):
            return _sendable("key", await source())  # type: ignore[operator, misc]
        if isinstance(source, KeptKey) or not callable(source):
            return await signing.in_thread(self._ask, refused)
        # It may block, and what it returns may have to be awaited.
        found = await signing.in_thread(source)
        return _sendable("key", await found if inspect.isawaitable(found) else found)

    def _shown(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"} if self._bearer else {"X-API-Key": key}


class _Signature(Credential):
    is_timed = True

    def __init__(self, agent_id: AgentId, signer: Signer, service: Tiergate | AsyncTiergate | Domain) -> None:
        self._agent_id, self._signer, self._service = agent_id, signer, service
        # A service knows its clock better.
        self._clock = Clock() if isinstance(service, Domain) else service._clock

    def headers(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        if isinstance(self._service, AsyncTiergate):
            raise ValueError("an asynchronous service needs an asynchronous client")
        return self._sendable(signing.sign(self._signer, self._data(self._service)))

    async def headers_async(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        if isinstance(self._service, AsyncTiergate):
            data = await self._service.typed_data(self._agent_id)
        else:
            data = await signing.in_thread(self._data, self._service)
        return self._sendable(await signing.sign_async(self._signer, data))

    def correct_clock(self, error: errors.TiergateError | None) -> bool:
        return self._clock.correct(error)

    def _data(self, service: Tiergate | Domain) -> TypedData:
        if isinstance(service, Domain):
            return signing.typed_data(service, self._agent_id, "Verification", self._clock.now())
        return service.typed_data(self._agent_id)

    @staticmethod
    def _sendable(signed: Signed) -> Mapping[str, str]:
        return {name: _sendable("signature", value) for name, value in signed.headers().items()}


class _MessageSignature(Credential):
    is_timed = True

    def __init__(self, agent_id: AgentId, account: MessageAccount, chain_id: int) -> None:
        self._agent_id, self._account, self._chain_id = signing.decimal(agent_id), account, chain_id
        self._clock = Clock()
        if type(chain_id) is not int or chain_id <= 0:
            raise ValueError("the chain's id is no positive number")

    def headers(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        request = self._of_agent(request)
        coverage = asked or erc8128.coverage_of(request)
        signed = erc8128.sign(self._account, self._chain_id, request, coverage, int(self._clock.now()))
        return {"X-Agent-Id": self._agent_id, **signed}

    async def headers_async(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        return await signing.in_thread(self.headers, request, asked)

    def correct_clock(self, error: errors.TiergateError | None) -> bool:
        return self._clock.correct(error)

    def asked(self, challenge: str, request: Outgoing) -> Coverage | None:
        request = self._of_agent(request)
        coverage = erc8128.coverage_asked(challenge, request)
        is_new = coverage and (coverage.nonce or coverage.components != erc8128.coverage_of(request).components)
        return coverage if is_new else None

    def _of_agent(self, request: Outgoing) -> Outgoing:
        return replace(request, fields={**request.fields, "x-agent-id": self._agent_id})


def by_key(api_key: KeySource, *, bearer: bool = False) -> Credential:
    """Shows the agent's API key: text, a `Path` of a file, or a callable that gets it. Blanks around it are removed.

    File and callable are asked once, and once more when the gateway refuses the key: it may have been rotated.

    As `X-API-Key`; with `bearer` as `Authorization: Bearer`, for APIs with an `X-API-Key` of their own.
    """
    return _Key(api_key, bearer)


def by_signature(agent_id: AgentId, signer: Signer, service: Tiergate | AsyncTiergate | Domain) -> Credential:
    """Signs each request as the agent's owner, for the domain that the service names, or for this one."""
    if not isinstance(service, (Tiergate, AsyncTiergate, Domain)):
        raise ValueError("the service is neither a Tiergate, nor an AsyncTiergate, nor a Domain")
    return _Signature(signing.decimal(agent_id), signer, service)


def by_message_signature(agent_id: AgentId, account: MessageAccount, chain_id: int) -> Credential:
    """Signs each request whole by ERC-8128: its method, address, body and agent.

    As the agent's owner, or as its own wallet where the gateway takes that. `chain_id` is that of the gateway's registries.
    A request whose body is a stream is a ValueError.
    """
    return _MessageSignature(agent_id, account, chain_id)


def _sendable(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the {name} is no text")
    # HTTP libraries quote what they can't send.
    if not re.fullmatch("[!-~]+", value.strip()):
        raise ValueError(f"the {name} has characters that no header can have")
    return value.strip()


def refuse_conflict(headers: Mapping[str, Any], shown: Mapping[str, str]) -> None:
    """Raises ValueError if a request has the header that the credential is to be shown in."""
    for name, other in [("X-API-Key", "with bearer=True"), ("Authorization", "without bearer")]:
        if name in shown and name in headers:
            raise ValueError(f"the request has an {name} of its own: show the agent's key {other}")
    for name in ("Signature", "Signature-Input"):
        if name in shown and name in headers:
            raise ValueError(f"the request has a {name} of its own")


#: No error of Tiergate is longer. It tells its length.
_ERROR_BYTES_MAX = 64 * 1024


class Repeating:
    """Decides which requests are sent again: those that the gateway refused before it forwarded them."""

    def __init__(self, credential: Credential, retries: int, max_wait: float) -> None:
        self._credential = credential
        #: What the last try has shown.
        self.shown: Mapping[str, str] = {}
        self._patience = Patience(retries, max_wait)
        self._is_corrected = False
        #: Shown in the next try. It holds for one request, not for a redirect of it.
        self.asked: Coverage | None = None

    def reads(self, status: int, headers: Mapping[str, str]) -> bool:
        """True if the body of this answer is needed: it may be a refusal of the gateway."""
        is_json = headers.get("content-type", "").startswith("application/json")
        length = headers.get("content-length", "")
        is_short = re.fullmatch("[0-9]{1,5}", length) is not None and int(length) <= _ERROR_BYTES_MAX
        # The gateway writes the agent's limit into what comes from the API, and into its own 429.
        is_refusal = is_json and is_short and ("x-ratelimit-limit" not in headers or status == 429)
        return is_refusal and (status in (401, 429, 503) or status == 400 and self._credential.is_timed)

    def asks_for_key(self, error: errors.TiergateError | None) -> bool:
        """True if the key has to be asked for once more: `renew` says if it is another."""
        return not self._is_corrected and isinstance(error, errors.InvalidApiKey)

    def wait(
        self,
        status: int,
        headers: Mapping[str, str],
        error: errors.TiergateError | None,
        request: Outgoing,
        is_renewed: bool,
    ) -> float | None:
        """Returns the seconds after which the request is sent again, or `None`."""
        if not self._is_corrected:
            is_asked = self._is_asked(status, headers, request)
            self._is_corrected = self._credential.correct_clock(error) or is_asked or is_renewed
            if self._is_corrected:
                return 0.0
        retry_after = errors.retry_after_of(headers)
        is_unverified = error is not None and error.reason == "signature_verification_unavailable"
        if status == 429 and retry_after is not None or isinstance(error, REFUSED_FOR_NOW) or is_unverified:
            return self._patience.wait(retry_after, error or f"status {status}")
        return None

    def _is_asked(self, status: int, headers: Mapping[str, str], request: Outgoing) -> bool:
        challenge = headers.get("accept-signature")
        # One of the API comes with the agent's limit, after the request was charged.
        if status == 401 and challenge is not None and "x-ratelimit-limit" not in headers:
            self.asked = self._credential.asked(challenge, request)
        return self.asked is not None


def _sending(kind: Any) -> Any:
    class Sent(kind):  # type: ignore[misc]
        """Headers with a part that is sent, but not copied: httpx copies headers into redirects to other origins."""

        def __init__(self, headers: Any, sent: Mapping[str, str]) -> None:
            self._sent = kind(sent)
            super().__init__([(name, value) for name, value in headers.multi_items() if name not in self._sent])

        @property
        def raw(self) -> list[tuple[bytes, bytes]]:
            return list(super().raw + self._sent.raw)

    return Sent


_SENT = {kind: _sending(kind) for kind in (httpx.Headers, libraries.httpx2.Headers)}


class _Blocking:
    """What a flow waits for. These coroutines never suspend."""

    async def headers(self, credential: Credential, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        return credential.headers(request, asked)

    async def renew(self, credential: Credential, shown: Mapping[str, str]) -> bool:
        return credential.renew(shown)

    async def read(self, response: Any) -> None:
        response.read()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Async(_Blocking):
    async def headers(self, credential: Credential, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        return await credential.headers_async(request, asked)

    async def renew(self, credential: Credential, shown: Mapping[str, str]) -> bool:
        return await credential.renew_async(shown)

    async def read(self, response: Any) -> None:
        await response.aread()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class Gateway:
    """The gateway that a credential is for, and how it is asked."""

    def __init__(
        self, gateway: str, credential: Credential, retries: int, max_wait: float, allow_http: str | None
    ) -> None:
        if not isinstance(credential, Credential):
            raise ValueError("the credential is not one of by_key, by_signature or by_message_signature")
        check_numbers(retries=retries, max_wait=max_wait)
        self.credential = credential
        self._origin = origin_of(parse_for_secrets(gateway, allow_http))
        self._bounds = retries, max_wait
        self._others: set[object] = set()

    def repeating(self) -> Repeating:
        return Repeating(self.credential, *self._bounds)

    def is_at(self, url: Any) -> bool:
        """True for a URL of the gateway."""
        return origin_of(url) == self._origin

    def note(self, url: Any) -> None:
        """Tells once that requests to another origin carry no credential."""
        origin = origin_of(url)
        if origin != self._origin and origin not in self._others:
            self._others.add(origin)
            there, gateway = (f"{scheme}://{host}{f':{port}' if port else ''}" for scheme, host, port in (origin, self._origin))
            LOGGER.warning("%s is not the gateway %s: requests to it carry no credential", there, gateway)


def name_client(headers: Any) -> None:
    """Names this package before the library's own name. A caller's stays alone."""
    library = headers.get("user-agent", "")
    if isinstance(library, str) and re.match("(python-(httpx2?|requests)|Python/[0-9.]+ aiohttp)/", library):
        headers["User-Agent"] = f"{USER_AGENT} {library}"


class GatewayAuth(libraries.Auth):
    """Shows an agent's credential to the gateway of this URL, and to no other origin: `httpx.Client(auth=...)`, or httpx2.

    Of the request's headers only `raw`, which is sent, has the credential: hooks and logs don't see it. Transports that
    copy headers in another way send none.

    Unless the body is a stream, requests are repeated that got 429 with `Retry-After`, or that the gateway refused before
    it forwarded them: after a wait for 503, and once for a time, signed by the gateway's clock, for an `Accept-Signature`,
    or for a key that was rotated. `retries` and `max_wait` (seconds, in all) bound that. Plain http is for this machine, and for
    the host that `allow_http` names.
    """

    def __init__(
        self,
        gateway: str,
        credential: Credential,
        *,
        retries: int = 2,
        max_wait: float = 60.0,
        allow_http: str | None = None,
    ) -> None:
        self._gateway = Gateway(gateway, credential, retries, max_wait, allow_http)

    def auth_flow(self, request: Any) -> Generator[Any, Any, None]:
        return self.sync_auth_flow(request)

    def sync_auth_flow(self, request: Any) -> Generator[Any, Any, None]:
        flow, response = self._flow(request, _Blocking()), None
        while True:
            # One step ends it: it never suspends.
            try:
                flow.asend(response).send(None)
            except StopAsyncIteration:
                return
            except StopIteration as sent:
                response = yield sent.value

    def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        return self._flow(request, _Async())

    async def _flow(self, request: Any, io: _Blocking) -> AsyncGenerator[Any, Any]:
        self._gateway.note(request.url)
        repeating = self._gateway.repeating()
        response = yield await self._with_credential(request, repeating, io)
        # Another origin must not choose what the credential is for.
        while all(self._gateway.is_at(each.request.url) for each in [*response.history, response]):
            # A redirect within the gateway has come without the credential.
            is_bare = response.request is not request
            request = response.request
            if is_bare:
                repeating.asked = None
            if not (is_bare and response.status_code == 401) and not await self._waits(repeating, response, io):
                return
            response = yield await self._with_credential(request, repeating, io)

    async def _waits(self, repeating: Repeating, response: Any, io: _Blocking) -> bool:
        status, headers = response.status_code, response.headers
        error, is_renewed = None, False
        if repeating.reads(status, headers):
            await io.read(response)
            error = errors.error_of(response)
        # After a stream the key is for the next request.
        if repeating.asks_for_key(error):
            is_renewed = await io.renew(self._gateway.credential, repeating.shown)
        try:
            response.request.content
        except RuntimeError:
            # A stream that is sent.
            return False
        wait = repeating.wait(status, headers, error, _outgoing(response.request), is_renewed)
        if wait is None:
            return False
        await io.sleep(wait)
        return True

    async def _with_credential(self, request: Any, repeating: Repeating, io: _Blocking) -> Any:
        if self._gateway.is_at(request.url):
            name_client(request.headers)
            repeating.shown = await io.headers(self._gateway.credential, _outgoing(request), repeating.asked)
            refuse_conflict(request.headers, repeating.shown)
            kind = next(kind for kind in _SENT if isinstance(request.headers, kind))
            request.headers = _SENT[kind](request.headers, repeating.shown)
        return request


def _outgoing(request: Any) -> Outgoing:
    url = request.url
    try:
        body = request.content
    except RuntimeError:
        # A redirect's is whole, but not read.
        is_whole = isinstance(request.stream, (httpx.ByteStream, libraries.httpx2.ByteStream))
        body = b"".join(request.stream) if is_whole else None
    fields = erc8128.fields_of(request.headers.multi_items())
    authority = fields.get("host", url.netloc.decode("ascii"))
    return Outgoing(request.method, url.scheme, authority, url.raw_path.decode("ascii"), fields, body)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """The agent that the gateway admitted."""

    agent_id: int
    owner: str
    trust_tier: int
    #: True if the request's `Origin` is not the endpoint declared for the key.
    endpoint_mismatch: bool
    #: In the token's smallest unit; None where no stake is read.
    staked_amount: int | None = None
    #: What gave the tier; None where only stakes do.
    tier_source: str | None = None


_HEADERS = {
    "x-agent-id": "[0-9]{1,78}",
    "x-agent-owner": "0x[0-9a-fA-F]{40}",
    "x-agent-tier": "[1-4]",
    "x-agent-endpoint-mismatch": "true|false",
    "x-agent-staked-amount": "[0-9]{1,78}",
    "x-agent-tier-source": "[a-z0-9_]{1,32}",
}

#: One of them is there always.
_SOURCES = {"x-agent-staked-amount", "x-agent-tier-source"}


class HeadersLike(Protocol):
    """Headers of any library: their names and values."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def agent_of(headers: HeadersLike) -> Agent | None:
    """Reads the gateway's headers; `None` if one is missing, malformed or there twice, which `agent_problem` names.

    Believe it only if the gateway alone can reach the server: the headers are not signed.
    """
    found = _read(headers)
    return found if isinstance(found, Agent) else None


def agent_problem(headers: HeadersLike) -> str | None:
    """Names the header that is missing, malformed or there twice, for the server's log; `None` where there is an agent."""
    found = _read(headers)
    return found if isinstance(found, str) else None


def refusal_of(headers: HeadersLike, min_tier: int) -> Agent | dict[str, Any]:
    """Returns the agent, or the body of a 403.

    The agent can't mend a missing header, so that it must not hear of its key. The log has which one it is.
    """
    found = _read(headers)
    error: dict[str, Any]
    if isinstance(found, str):
        LOGGER.warning("a request has not come through the gateway as an agent's: %s", found)
        message = "The request has not come through the gateway as an agent's"
        error = {"error": message, "errorType": "FORBIDDEN", "details": {}}
    elif found.trust_tier < min_tier:
        tiers = {"currentTier": found.trust_tier, "requiredTier": min_tier}
        message = "The agent does not have the tier that is required"
        details = {"agentId": str(found.agent_id), **tiers}
        error = {"error": message, "errorType": "TIER_BLOCKED", "details": details}
    else:
        return found
    return error | {"timestamp": int(time.time() * 1000)}


def _read(headers: HeadersLike) -> Agent | str:
    if not hasattr(headers, "items"):
        raise ValueError("these are no headers")
    values: dict[str, str] = {}
    for name, value in headers.items():
        # A header that is there twice is malformed.
        values[name.lower()] = "" if name.lower() in values else value
    for name in values.keys() & _HEADERS.keys():
        if not re.fullmatch(_HEADERS[name], values[name]):
            return f"{name} is malformed, or there twice"
    missing = [name for name in _HEADERS if name not in values and name not in _SOURCES]
    if missing:
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    if not values.keys() & _SOURCES:
        return "x-agent-staked-amount and x-agent-tier-source are missing"
    stake = values.get("x-agent-staked-amount")
    return Agent(
        agent_id=int(values["x-agent-id"]),
        owner=values["x-agent-owner"],
        trust_tier=int(values["x-agent-tier"]),
        endpoint_mismatch=values["x-agent-endpoint-mismatch"] == "true",
        staked_amount=None if stake is None else int(stake),
        tier_source=values.get("x-agent-tier-source"),
    )
