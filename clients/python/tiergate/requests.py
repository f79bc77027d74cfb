"""An agent's credential in requests of the library requests."""

from __future__ import annotations

from typing import Any

import requests
from requests.auth import AuthBase

from .gateway import Credential, origin_of


class GatewayAuth(AuthBase):
    """Shows an agent's credential to the gateway of this URL, and to no other origin: `session.auth = ...`."""

    def __init__(self, gateway: str, credential: Credential) -> None:
        self._origin = origin_of(gateway)
        self._credential = credential

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if origin_of(request.url or "") != self._origin:
            return request
        credential = self._credential()
        request.headers.update(credential)

        def answered(response: requests.Response, **options: Any) -> requests.Response:
            # Session copies the headers of the first request into redirects, also to another origin.
            for name in credential:
                request.headers.pop(name, None)
            sent = response.request
            if response.status_code != 401 or sent is request or origin_of(sent.url or "") != self._origin:
                return response
            # A redirect within the gateway has come without the credential.
            response.content  # Frees the connection.
            again = sent.copy()
            again.headers.update(self._credential())
            result: requests.Response = response.connection.send(again, **options)
            result.history = [*response.history, response]
            return result

        request.register_hook("response", answered)  # type: ignore[no-untyped-call]
        return request
