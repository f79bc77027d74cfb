"""The clients of the API.

`_Service` has each call once, as a coroutine. `Tiergate` runs them with blocking I/O: they never suspend, so one step
ends them.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import httpx

from . import errors, libraries, signing
from .answers import Domain, IssuedKey, KeyStatus, Profile, RevokedKey, Signing, Verification, read
from .retry import REFUSED_FOR_NOW, Patience, check_numbers
from .signing import PRIMARY_TYPES, AgentId, Clock, Operation, Signed, Signer, TypedData, decimal
from .urls import is_this_machine, parse_for_secrets
from .version import USER_AGENT

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds. The service allows five minutes.
_SIGNING_KEPT = 300.0
#: Eight times what the service reads of the chain in one answer.
_ANSWER_BYTES_MAX = 8 * 1024 * 1024
_KEY_OPERATIONS = {"/keys/generate", "/keys/rotate", "/keys"}
_CHARGED = {"/verify", "/verify/signature"}
#: Ends the message of an error after which a key may have been changed.
_KEY_UNSURE = ": the key may have been changed. Ask keys.status; if there is a key that you have not seen, rotate it"


class _Service(ABC):
    """Every call of the API."""

    def __init__(
        self,
        url: str,
        *,
        domain: Domain | None,
        service_name: str | None,
        retries: int,
        max_wait: float,
        timeout: float,
        allow_http: str | None,
    ) -> None:
        check_numbers(retries=retries, max_wait=max_wait, timeout=timeout)
        if domain is not None and not isinstance(domain, Domain):
            raise ValueError("domain is no Domain")
        if service_name is not None and not isinstance(service_name, str):
            raise ValueError("service_name is no text")
        self.keys = AsyncKeys(self)
        address = parse_for_secrets(url, allow_http)
        self._url = str(address).rstrip("/")
        #: For a client of its own. A proxy that the environment names is not this machine, and would read plain http.
        self._options: dict[str, Any] = {"timeout": timeout, "trust_env": address.scheme == "https" or not is_this_machine(address.host)}
        self._domain = domain
        self._service_name = service_name
        self._retries = retries
        self._max_wait = max_wait
        self._timeout = timeout
        self._clock = Clock()
        self._kept: tuple[float, Signing] | None = None

    @abstractmethod
    async def _send(self, method: str, url: str, body: dict[str, Any] | None) -> _Answer: ...

    @abstractmethod
    async def _sleep(self, seconds: float) -> None: ...

    @abstractmethod
    async def _sign(self, signer: Signer, data: TypedData) -> Signed: ...

    async def signing(self) -> Signing:
        """Returns the domain that owners sign, and the tiers. Kept for five minutes."""
        if self._kept is None or time.monotonic() - self._kept[0] > _SIGNING_KEPT:
            found = await self._call(Signing, "GET", "/.well-known/tiergate")
            self._kept = (time.monotonic(), replace(found, domain=self._domain or found.domain))
        return self._kept[1]

    async def verify(
        self, api_key: str, agent_id: AgentId | None = None, origin: str | None = None
    ) -> Verification:
        """Verifies an agent by its API key. Blanks around it are removed: files end in one."""
        if not isinstance(api_key, str):
            raise ValueError("the API key is no text")
        number = None if agent_id is None else decimal(agent_id)
        return await self._call(
            Verification, "POST", "/verify", {"apiKey": api_key.strip(), "agentId": number, "origin": origin}
        )

    async def verify_signature(self, agent_id: AgentId, signer: Signer | Signed) -> Verification:
        """Verifies an agent by its owner's signature."""
        return await self._signed(Verification, "POST", "/verify/signature", agent_id, signer, "verify")

    async def profile(self, agent_id: AgentId, signer: Signer | Signed) -> Profile:
        """Reads an agent's profile as its owner. The agent may have any tier."""
        return await self._signed(Profile, "POST", "/profile", agent_id, signer, "profile")

    async def typed_data(self, agent_id: AgentId, operation: Operation = "verify") -> TypedData:
        """Returns what an owner signs for one request, for signers elsewhere: see `Signed`."""
        domain = self._domain or (await self.signing()).domain
        if operation not in PRIMARY_TYPES:
            raise ValueError("no operation of the API")
        usual, *own = PRIMARY_TYPES[operation]
        service = await self._name() if own else None
        primary_type = usual if service is None else own[0]
        return signing.typed_data(domain, agent_id, primary_type, self._clock.now(), service)

    async def _name(self) -> str | None:
        """Returns the name that changes of keys are signed for, where they have own types. A service could name another."""
        if self._service_name is not None or self._domain is not None:
            return self._service_name
        own_types = (await self.signing()).key_operations
        if own_types is None:
            return None
        if own_types.service != self._url:
            advice = "if you mean that service, give its name as service_name"
            raise ValueError(f"{self._url} calls itself {own_types.service!r}: {advice}")
        return own_types.service

    async def _signed(
        self,
        kind: type[T],
        method: str,
        path: str,
        agent_id: AgentId,
        signer: Signer | Signed,
        operation: Operation,
        further: Mapping[str, Any] = MappingProxyType({}),
    ) -> T:
        if isinstance(signer, Signed):
            is_of_type = signer.typed_data["primaryType"] in PRIMARY_TYPES[operation]
            if not is_of_type or signer.body()["agentId"] != decimal(agent_id):
                raise ValueError("signed for another agent or purpose")
            return await self._call(kind, method, path, {**signer.body(), **further})

        async def sign() -> dict[str, Any]:
            data = await self.typed_data(agent_id, operation)
            return {**(await self._sign(signer, data)).body(), **further}

        return await self._call(kind, method, path, sign)

    async def _call(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: dict[str, Any] | Callable[[], Coroutine[Any, Any, dict[str, Any]]] | None = None,
    ) -> T:
        """Repeats only what the service refused for now, or once for its timestamp. A repetition is signed anew."""
        patience, is_corrected = Patience(self._retries, self._max_wait), False
        while True:
            # Errors of signing are not those of sending.
            content = await body() if callable(body) else body
            try:
                return _read(kind, await self._send(method, self._url + path, content))
            except errors.ReplayDetected as error:
                if not self._clock.correct(error) or is_corrected or not callable(body):
                    raise
                is_corrected = True
            except REFUSED_FOR_NOW as error:
                wait = patience.wait(error.retry_after, error)
                if wait is None:
                    raise
                await self._sleep(wait)
            except errors.NotTiergate as error:
                if path in _KEY_OPERATIONS and error.status not in range(300, 500):
                    said = f"{error.said}{_KEY_UNSURE}"
                    raise errors.OutcomeUnknown(said, status=error.status, request_id=error.request_id) from None
                raise
            except libraries.REQUEST_ERRORS as error:
                unknown = path in _KEY_OPERATIONS | _CHARGED and not isinstance(error, libraries.NOT_SENT)
                problem = errors.OutcomeUnknown if unknown else errors.Unreachable
                unsure = _KEY_UNSURE if unknown and path in _KEY_OPERATIONS else ""
                raise problem(f"no answer to {method} {path}: {type(error).__name__}{unsure}") from error


class _Answer:
    """A response that is read up to a limit."""

    def __init__(self, response: libraries.Response) -> None:
        self.status_code = response.status_code
        self.headers = response.headers
        self.content = b""
        # A few bytes can unpack to more than the memory holds.
        if self.headers.get("content-encoding", "identity") != "identity":
            raise _not_tiergate("it is compressed", self)

    def add(self, piece: bytes) -> None:
        self.content += piece
        if len(self.content) > _ANSWER_BYTES_MAX:
            raise _not_tiergate("it is too long", self)


def _read(kind: type[T], answer: _Answer) -> T:
    if error := errors.error_of(answer):
        raise error
    try:
        if not 200 <= answer.status_code < 300:
            raise ValueError(f"status {answer.status_code}")
        body = errors.parse_json(answer.content)
        if (limit := answer.headers.get("x-ratelimit-limit")) is not None:
            remaining = answer.headers.get("x-ratelimit-remaining")
            body["rateLimit"] = {"limit": limit, "remaining": remaining}
        return read(kind, body)
    except (ValueError, TypeError) as error:
        # The cause may quote the body, which can hold a key.
        raise _not_tiergate(str(error), answer) from None


def _not_tiergate(why: str, answer: _Answer) -> errors.NotTiergate:
    said, request_id = f"the answer is not one of Tiergate: {why}", errors.request_id_of(answer.headers)
    return errors.NotTiergate(said, status=answer.status_code, request_id=request_id)


def terms(
    *,
    declared_endpoint: str | None = None,
    name: str | None = None,
    expires_in: int | None = None,
    tenants: Sequence[str] | None = None,
    grace_seconds: int | None = None,
) -> dict[str, Any]:
    """Returns the fields that a request for a key has. Raises ValueError that names a wrong one."""
    for what, text in (("declared_endpoint", declared_endpoint), ("name", name)):
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{what} is no text")
    for what, seconds in (("expires_in", expires_in), ("grace_seconds", grace_seconds)):
        if seconds is not None and (type(seconds) is not int or seconds < 0):
            raise ValueError(f"{what} is no number of seconds")
    if isinstance(tenants, str) or not all(isinstance(each, str) for each in tenants or ()):
        raise ValueError("tenants is no list of ids as text")
    fields = {
        "declaredEndpoint": declared_endpoint or None,
        "name": name,
        "expiresIn": expires_in,
        "tenants": None if tenants is None else list(tenants),
        "graceSeconds": grace_seconds,
    }
    return {field: value for field, value in fields.items() if value is not None}


class AsyncKeys:
    """An agent's API keys."""

    def __init__(self, service: _Service) -> None:
        self._service = service

    async def generate(
        self,
        agent_id: AgentId,
        signer: Signer | Signed,
        *,
        declared_endpoint: str | None = None,
        name: str | None = None,
        expires_in: int | None = None,
        tenants: Sequence[str] | None = None,
    ) -> IssuedKey:
        """Makes the agent's key. The answer shows it this once.

        `name` tells it from the agent's others, `expires_in` are the seconds after which it is refused, `tenants` the ids of the
        gateway's tenants that it opens, and no other.
        """
        further = terms(declared_endpoint=declared_endpoint, name=name, expires_in=expires_in, tenants=tenants)
        return await self._service._signed(
            IssuedKey, "POST", "/keys/generate", agent_id, signer, "generate", further
        )

    async def rotate(
        self,
        agent_id: AgentId,
        signer: Signer | Signed,
        *,
        declared_endpoint: str | None = None,
        name: str | None = None,
        expires_in: int | None = None,
        tenants: Sequence[str] | None = None,
        grace_seconds: int | None = None,
    ) -> IssuedKey:
        """Replaces the key of this name, or the only one. The old one is invalid at once, or after `grace_seconds`."""
        further = terms(
            declared_endpoint=declared_endpoint,
            name=name,
            expires_in=expires_in,
            tenants=tenants,
            grace_seconds=grace_seconds,
        )
        return await self._service._signed(IssuedKey, "POST", "/keys/rotate", agent_id, signer, "rotate", further)

    async def revoke(
        self, agent_id: AgentId, signer: Signer | Signed, *, name: str | None = None
    ) -> RevokedKey:
        """Revokes the keys, or the one of this name. Succeeds also without one."""
        return await self._service._signed(
            RevokedKey, "DELETE", "/keys", agent_id, signer, "revoke", terms(name=name)
        )

    async def status(self, agent_id: AgentId) -> KeyStatus:
        """Tells if the agent has a key."""
        return await self._service._call(KeyStatus, "GET", f"/keys/status?agentId={decimal(agent_id)}")


def _request(method: str, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
    # A redirect would take the credential elsewhere. The service sends none.
    headers = {"Accept-Encoding": "identity", "User-Agent": USER_AGENT}
    content = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        # In ASCII: an error of encoding would have the whole body.
        content = json.dumps(body).encode()
    return {"method": method, "url": url, "content": content, "headers": headers, "follow_redirects": False}


class AsyncTiergate(_Service):
    """A service, for asyncio and trio. Refused and failed requests raise a `TiergateError`, wrong arguments a `ValueError`.

    `http`, a client of httpx or httpx2, is used instead of one of its own. `domain` is signed instead of the one that the
    service names, and changes of keys for `service_name`, as types of their own. Without both, a service with own types must
    have its URL as name. Plain http is for this machine, and for the host that `allow_http` names. `retries` and `max_wait`
    (seconds, in all) bound the repetitions of one call, `timeout` (seconds) each request with its answer. Signers that block are
    asked in a thread.
    """

    def __init__(
        self,
        url: str,
        *,
        http: libraries.AsyncClient | None = None,
        domain: Domain | None = None,
        service_name: str | None = None,
        retries: int = 2,
        max_wait: float = 60.0,
        timeout: float = 30.0,
        allow_http: str | None = None,
    ) -> None:
        super().__init__(
            url,
            domain=domain,
            service_name=service_name,
            retries=retries,
            max_wait=max_wait,
            timeout=timeout,
            allow_http=allow_http,
        )
        self._http = http or httpx.AsyncClient(**self._options)
        self._owned = http is None

    async def _send(self, method: str, url: str, body: dict[str, Any] | None) -> _Answer:
        try:
            with anyio.fail_after(self._timeout):
                async with self._http.stream(**_request(method, url, body)) as response:
                    answer = _Answer(response)
                    async for piece in response.aiter_bytes():
                        answer.add(piece)
                    return answer
        except TimeoutError:
            raise httpx.ReadTimeout("") from None

    async def _sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def _sign(self, signer: Signer, data: TypedData) -> Signed:
        return await signing.sign_async(signer, data)

    async def aclose(self) -> None:
        """Closes the connections, unless they are of a client that was passed."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> AsyncTiergate:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Blocking(_Service):
    http: libraries.Client
    #: When all calls have to end, by the monotonic clock, whatever `http` waits for.
    end = math.inf

    async def _send(self, method: str, url: str, body: dict[str, Any] | None) -> _Answer:
        wait = min(self._timeout, self.end - time.monotonic())
        if wait <= 0:
            raise httpx.ConnectTimeout("")
        end = time.monotonic() + wait
        bounds: dict[str, Any] = {} if self.end == math.inf else {"timeout": wait}
        with self.http.stream(**_request(method, url, body), **bounds) as response:
            answer, is_late = _Answer(response), False
            for piece in response.iter_bytes():
                # An answer that is there whole is taken: it may be a key.
                if is_late:
                    raise httpx.ReadTimeout("")
                answer.add(piece)
                is_late = time.monotonic() > end
            return answer

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def _sign(self, signer: Signer, data: TypedData) -> Signed:
        return signing.sign(signer, data)


def _blocking(
    call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Makes a method of one that never suspends."""

    @functools.wraps(call)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            call(self._calls, *args, **kwargs).send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise RuntimeError("a blocking call has suspended")

    return method


class Keys:
    """An agent's API key."""

    def __init__(self, calls: AsyncKeys) -> None:
        self._calls = calls

    generate = _blocking(AsyncKeys.generate)
    rotate = _blocking(AsyncKeys.rotate)
    revoke = _blocking(AsyncKeys.revoke)
    status = _blocking(AsyncKeys.status)


class Tiergate:
    """A service. Refused and failed requests raise a `TiergateError`, wrong arguments a `ValueError`.

    `http`, a client of httpx or httpx2, is used instead of one of its own. `domain` is signed instead of the one that the
    service names, and changes of keys for `service_name`, as types of their own. Without both, a service with own types must
    have its URL as name. Plain http is for this machine, and for the host that `allow_http` names. `retries` and `max_wait`
    (seconds, in all) bound the repetitions of one call. `timeout` (seconds) bounds each wait for the network, unless `http` has
    its own; an answer whose pieces arrive for longer is given up.
    """

    def __init__(
        self,
        url: str,
        *,
        http: libraries.Client | None = None,
        domain: Domain | None = None,
        service_name: str | None = None,
        retries: int = 2,
        max_wait: float = 60.0,
        timeout: float = 30.0,
        allow_http: str | None = None,
    ) -> None:
        self._calls = _Blocking(
            url,
            domain=domain,
            service_name=service_name,
            retries=retries,
            max_wait=max_wait,
            timeout=timeout,
            allow_http=allow_http,
        )
        self._calls.http = http or httpx.Client(**self._calls._options)
        self._owned = http is None
        self._clock = self._calls._clock
        self.keys = Keys(self._calls.keys)

    signing = _blocking(_Service.signing)
    verify = _blocking(_Service.verify)
    verify_signature = _blocking(_Service.verify_signature)
    profile = _blocking(_Service.profile)
    typed_data = _blocking(_Service.typed_data)

    def _bounded(self, seconds: float) -> Tiergate:
        """Returns the same service, with its connections, but without repetitions, for calls that end within these seconds."""
        same, calls = copy.copy(self), copy.copy(self._calls)
        calls._retries, calls.end = 0, time.monotonic() + seconds
        same._calls, same._owned, same.keys = calls, False, Keys(AsyncKeys(calls))
        return same

    def close(self) -> None:
        """Closes the connections, unless they are of a client that was passed."""
        if self._owned:
            self._calls.http.close()

    def __enter__(self) -> Tiergate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
