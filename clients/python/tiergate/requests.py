"""An agent's credential in requests of the library requests."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase
from requests.exceptions import UnrewindableBodyError
from requests.utils import rewind_body

from . import errors
from .erc8128 import Outgoing, fields_of
from .gateway import Credential, Gateway, Repeating, name_client, refuse_conflict


class GatewayAuth(AuthBase):
    """Shows an agent's credential to the gateway of this URL, and to no other origin: `session.auth = ...`.

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

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if not self._gateway.is_at(request.url or ""):
            self._gateway.note(request.url or "")
            return request
        credential = self._gateway.credential
        name_client(request.headers)
        if isinstance(request.body, str):
            # Versions of urllib3 differ in how they encode it.
            request.body = request.body.encode()
        repeating = self._gateway.repeating()
        repeating.shown = shown = credential.headers(_outgoing(request), None)
        refuse_conflict(request.headers, shown)
        request.headers.update(shown)
        has_strayed = False

        def answered(response: requests.Response, **options: Any) -> requests.Response:
            # Session copies the headers of the first request into redirects, also to another origin.
            for name in shown:
                request.headers.pop(name, None)
            nonlocal has_strayed
            sent = response.request
            # A redirect within the gateway has come without the credential.
            is_bare = sent is not request
            has_strayed = is_bare and (has_strayed or not self._gateway.is_at(sent.url or ""))
            if is_bare:
                repeating.asked = None
            # Another origin must not choose what the credential is for.
            while not has_strayed:
                wait = 0.0 if is_bare and response.status_code == 401 else _wait(credential, repeating, response)
                again = sent.copy()
                if wait is None or not _rewinds(again):
                    break
                response.content  # Frees the connection.
                time.sleep(wait)
                repeating.shown = credential.headers(_outgoing(again), repeating.asked)
                again.headers.update(repeating.shown)
                result: requests.Response = response.connection.send(again, **options)
                result.history = [*response.history, response]
                response, is_bare = result, False
            return response

        request.register_hook("response", answered)  # type: ignore[no-untyped-call]
        return request


def _wait(credential: Credential, repeating: Repeating, response: requests.Response) -> float | None:
    status, headers = response.status_code, response.headers
    error = errors.error_of(response) if repeating.reads(status, headers) else None
    is_renewed = repeating.asks_for_key(error) and credential.renew(repeating.shown)
    return repeating.wait(status, headers, error, _outgoing(response.request), is_renewed)


def _outgoing(request: requests.PreparedRequest) -> Outgoing:
    url = urlsplit(request.url or "")
    body = b"" if request.body is None else request.body if isinstance(request.body, bytes) else None
    fields = fields_of((name, _text(value)) for name, value in request.headers.items())
    authority = fields.get("host", url.netloc)
    return Outgoing(request.method or "", url.scheme, authority, request.path_url, fields, body)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _rewinds(request: requests.PreparedRequest) -> bool:
    """Makes the body ready to be sent again. False if it is a stream that is sent."""
    try:
        if not isinstance(request.body, (str, bytes, type(None))):
            rewind_body(request)
    except UnrewindableBodyError:
        return False
    return True
