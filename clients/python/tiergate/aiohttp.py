"""An agent's credential in requests of aiohttp."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass

import anyio
import httpx
from aiohttp import BytesPayload, ClientHandlerType, ClientRequest, ClientResponse
from yarl import URL

from . import errors
from .erc8128 import Outgoing, fields_of
from .gateway import Credential, Gateway, Repeating, name_client, refuse_conflict

#: The gateway's address to which the last answer of this task leads, from elsewhere: the next request there is no choice of the
#: program's. A session may have several gateways' credentials, and each sees every request.
_LED: ContextVar[str | None] = ContextVar("tiergate led", default=None)


class GatewayAuth:
    """Shows an agent's credential to the gateway of this URL, and to no other origin: `ClientSession(middlewares=[...])`.

    Repeats what that of httpx repeats.
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

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        # aiohttp sends each redirect as a request of its own, in the same task.
        led = _LED.get()
        is_chosen = led is None or not self._gateway.is_at(led)
        has_credential = is_chosen and self._gateway.is_at(str(request.url))
        self._gateway.note(str(request.url))
        try:
            response = await (self._ask(request, handler) if has_credential else handler(request))
        finally:
            # It was for this request alone, and whoever stands before this one has read it.
            if _LED.get() is led:
                _LED.set(None)
        # Another origin must not choose what the credential is for.
        if not has_credential and (there := self._led_here(response)):
            _LED.set(there)
        return response

    def _led_here(self, response: ClientResponse) -> str | None:
        location = response.headers.get("Location") or response.headers.get("URI") or ""
        try:
            there = str(response.url.join(URL(location)))
            return there if 300 <= response.status < 400 and self._gateway.is_at(there) else None
        except (ValueError, httpx.InvalidURL):
            # Nobody can follow it.
            return None

    async def _ask(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        credential, repeating = self._gateway.credential, self._gateway.repeating()
        name_client(request.headers)
        repeating.shown = await credential.headers_async(await _outgoing(request), None)
        refuse_conflict(request.headers, repeating.shown)
        while True:
            request.headers.update(repeating.shown)
            response = await handler(request)
            wait = await self._wait(repeating, request, response)
            if wait is None:
                return response
            response.release()
            await anyio.sleep(wait)
            repeating.shown = await credential.headers_async(await _outgoing(request), repeating.asked)

    async def _wait(self, repeating: Repeating, request: ClientRequest, response: ClientResponse) -> float | None:
        status, headers = response.status, response.headers
        error = errors.error_of(await _read(response)) if repeating.reads(status, headers) else None
        is_renewed = repeating.asks_for_key(error) and await self._gateway.credential.renew_async(repeating.shown)
        # A stream that is sent.
        if request.body and request.body.consumed:
            return None
        return repeating.wait(status, headers, error, await _outgoing(request), is_renewed)


async def _outgoing(request: ClientRequest) -> Outgoing:
    url, body = request.url, request.body
    # Others are read, or compressed, as they are sent.
    is_whole = isinstance(body, BytesPayload) and not request.compress
    content = (await body.as_bytes() if is_whole else None) if body else b""
    fields = fields_of(request.headers.items())
    return Outgoing(request.method, url.scheme, fields.get("host", url.authority), url.raw_path_qs, fields, content)


@dataclass(frozen=True)
class _Read:
    """What the package reads in an answer of httpx or requests."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


async def _read(response: ClientResponse) -> _Read:
    return _Read(response.status, response.headers, await response.read())


async def raise_for_error(response: ClientResponse) -> None:
    """Raises the gateway's refusal, as that of the package does: `ClientSession(raise_for_status=raise_for_error)`."""
    if response.status >= 400:
        errors.raise_for_error(await _read(response))
