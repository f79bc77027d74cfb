"""Both sides of the gateway: an agent's credential in requests, and the agent in a server's requests."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
import httpx

from . import erc8128, errors, libraries, signing
from .answers import Domain
from .client import AsyncTiergate, Tiergate
from .erc8128 import Coverage, MessageAccount, Outgoing
from .retry import REFUSED_FOR_NOW, Patience
from .signing import AgentId, Clock, Signed, Signer, TypedData
from .urls import origin_of, parse


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


class _Key(Credential):
    def __init__(self, name: str, value: str) -> None:
        self._headers = {name: value}

    def headers(self, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        return self._headers


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
        if chain_id <= 0:
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


def by_key(api_key: str, *, bearer: bool = False) -> Credential:
    """Shows the agent's API key. Blanks around it are removed: files end in one.

    As `X-API-Key`; with `bearer` as `Authorization: Bearer`, for APIs with an `X-API-Key` of their own.
    """
    key = _sendable("key", api_key)
    return _Key("Authorization", f"Bearer {key}") if bearer else _Key("X-API-Key", key)


def by_signature(agent_id: AgentId, signer: Signer, service: Tiergate | AsyncTiergate | Domain) -> Credential:
    """Signs each request as the agent's owner, for the domain that the service names, or for this one."""
    return _Signature(agent_id, signer, service)


def by_message_signature(agent_id: AgentId, account: MessageAccount, chain_id: int) -> Credential:
    """Signs each request whole by ERC-8128: its method, address, body and agent.

    As the agent's owner, or as its own wallet where the gateway takes that. `chain_id` is that of the gateway's registries.
    A request whose body is a stream is a ValueError.
    """
    return _MessageSignature(agent_id, account, chain_id)


def _sendable(name: str, value: str) -> str:
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
        self._patience = Patience(retries, max_wait)
        self._is_corrected = False
        #: Shown in the next try. It holds for one request, not for a redirect of it.
        self.asked: Coverage | None = None

    def reads(self, status: int, headers: Mapping[str, str]) -> bool:
        """True if the body of this answer is needed: it may be a refusal of the gateway."""
        is_json = headers.get("content-type", "").startswith("application/json")
        length = headers.get("content-length", "")
        is_short = re.fullmatch("[0-9]{1,5}", length) is not None and int(length) <= _ERROR_BYTES_MAX
        # The gateway writes the agent's limit into what comes from the API.
        is_refusal = is_json and is_short and "x-ratelimit-limit" not in headers
        return is_refusal and (status == 503 or status in (400, 401) and self._credential.is_timed)

    def wait(
        self, status: int, headers: Mapping[str, str], error: errors.TiergateError | None, request: Outgoing
    ) -> float | None:
        """Returns the seconds after which the request is sent again, or `None`."""
        if not self._is_corrected:
            is_asked = self._is_asked(status, headers, request)
            self._is_corrected = self._credential.correct_clock(error) or is_asked
            if self._is_corrected:
                return 0.0
        retry_after = errors.retry_after_of(headers)
        is_unverified = error is not None and error.reason == "signature_verification_unavailable"
        if status == 429 and retry_after is not None or isinstance(error, REFUSED_FOR_NOW) or is_unverified:
            return self._patience.wait(retry_after)
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

    async def read(self, response: Any) -> None:
        response.read()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Async(_Blocking):
    async def headers(self, credential: Credential, request: Outgoing, asked: Coverage | None) -> Mapping[str, str]:
        return await credential.headers_async(request, asked)

    async def read(self, response: Any) -> None:
        await response.aread()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class GatewayAuth(libraries.Auth):
    """Shows an agent's credential to the gateway of this URL, and to no other origin: `httpx.Client(auth=...)`, or httpx2.

    Of the request's headers only `raw`, which is sent, has the credential: hooks and logs don't see it. Transports that
    copy headers in another way send none.

    Unless the body is a stream, requests are repeated that got 429 with `Retry-After`, or that the gateway refused before
    it forwarded them: after a wait for 503, and once for a time, signed by the gateway's clock, or for an
    `Accept-Signature`. `retries` and `max_wait` (seconds, in all) bound that.
    """

    def __init__(self, gateway: str, credential: Credential, *, retries: int = 2, max_wait: float = 60.0) -> None:
        self._origin = origin_of(parse(gateway))
        self._credential = credential
        self._bounds = retries, max_wait

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
        repeating = Repeating(self._credential, *self._bounds)
        response = yield await self._with_credential(request, repeating, io)
        # Another origin must not choose what the credential is for.
        while all(origin_of(each.request.url) == self._origin for each in [*response.history, response]):
            # A redirect within the gateway has come without the credential.
            is_bare = response.request is not request
            request = response.request
            if is_bare:
                repeating.asked = None
            if not (is_bare and response.status_code == 401) and not await self._waits(repeating, response, io):
                return
            response = yield await self._with_credential(request, repeating, io)

    @staticmethod
    async def _waits(repeating: Repeating, response: Any, io: _Blocking) -> bool:
        status, headers = response.status_code, response.headers
        error = None
        try:
            response.request.content
        except RuntimeError:
            # A stream that is sent.
            return False
        if repeating.reads(status, headers):
            await io.read(response)
            error = errors.error_of(response)
        wait = repeating.wait(status, headers, error, _outgoing(response.request))
        if wait is None:
            return False
        await io.sleep(wait)
        return True

    async def _with_credential(self, request: Any, repeating: Repeating, io: _Blocking) -> Any:
        if origin_of(request.url) == self._origin:
            shown = await io.headers(self._credential, _outgoing(request), repeating.asked)
            refuse_conflict(request.headers, shown)
            kind = next(kind for kind in _SENT if isinstance(request.headers, kind))
            request.headers = _SENT[kind](request.headers, shown)
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


def agent_of(headers: Mapping[str, str]) -> Agent | None:
    """Reads the gateway's headers; `None` if one is missing, malformed or there twice.

    Believe it only if the gateway alone can reach the server: the headers are not signed.
    """
    values: dict[str, str] = {}
    for name, value in headers.items():
        # A header that is there twice is malformed.
        values[name.lower()] = "" if name.lower() in values else value
    found = {name: values[name] for name, form in _HEADERS.items() if re.fullmatch(form, values.get(name, ""))}
    there = values.keys() & _HEADERS.keys()
    if found.keys() != there or not there >= _HEADERS.keys() - _SOURCES or not there & _SOURCES:
        return None
    stake = found.get("x-agent-staked-amount")
    return Agent(
        agent_id=int(found["x-agent-id"]),
        owner=found["x-agent-owner"],
        trust_tier=int(found["x-agent-tier"]),
        endpoint_mismatch=found["x-agent-endpoint-mismatch"] == "true",
        staked_amount=None if stake is None else int(stake),
        tier_source=found.get("x-agent-tier-source"),
    )
