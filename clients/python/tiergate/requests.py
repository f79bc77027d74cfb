"""An agent's credential in requests of the library requests."""

from __future__ import annotations

from typing import Any

import requests
from requests.auth import AuthBase
from requests.exceptions import UnrewindableBodyError
from requests.utils import rewind_body

from .gateway import Credential
from .urls import origin_of, parse


class GatewayAuth(AuthBase):
    """Shows an agent's credential to the gateway of this URL, and to no other origin: `session.auth = ...`."""

    def __init__(self, gateway: str, credential: Credential) -> None:
        self._origin = origin_of(parse(gateway))
        self._credential = credential

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if origin_of(request.url or "") != self._origin:
            return request
        credential = self._credential()
        request.headers.update(credential)
        has_strayed = False

        def answered(response: requests.Response, **options: Any) -> requests.Response:
            # Session copies the headers of the first request into redirects, also to another origin.
            for name in credential:
                request.headers.pop(name, None)
            nonlocal has_strayed
            sent = response.request
            has_strayed = sent is not request and (has_strayed or origin_of(sent.url or "") != self._origin)
            # Another origin must not choose what the credential is for.
            if response.status_code != 401 or sent is request or has_strayed:
                return response
            # A redirect within the gateway has come without the credential.
            again = sent.copy()
            if not isinstance(again.body, (str, bytes, type(None))):
                try:
                    rewind_body(again)
                except UnrewindableBodyError:
                    return response
            response.content  # Frees the connection.
            again.headers.update(self._credential())
            result: requests.Response = response.connection.send(again, **options)
            result.history = [*response.history, response]
            return result

        request.register_hook("response", answered)  # type: ignore[no-untyped-call]
        return request
