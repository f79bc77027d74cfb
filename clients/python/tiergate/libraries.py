"""httpx and its successor httpx2, which have the same classes: both are supported where both are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

import httpx

try:
    import httpx2 as httpx2
except ImportError:
    httpx2 = httpx  # type: ignore[misc]

Client = Union[httpx.Client, httpx2.Client]
AsyncClient = Union[httpx.AsyncClient, httpx2.AsyncClient]
URL = Union[httpx.URL, httpx2.URL]
Response = Union[httpx.Response, httpx2.Response]

REQUEST_ERRORS = (httpx.RequestError, httpx2.RequestError)
#: The request was not sent.
NOT_SENT = (
    *(httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout),
    *(httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout),
)

if TYPE_CHECKING:

    class Auth(httpx.Auth, httpx2.Auth):  # type: ignore[misc]
        """An `auth` for the clients of both."""
else:
    # `httpx2.alias_httpx` makes them one.
    Auth = type("Auth", tuple(dict.fromkeys([httpx.Auth, httpx2.Auth])), {})
