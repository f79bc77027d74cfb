"""URLs of services and gateways."""

from __future__ import annotations

import httpx

from .libraries import URL


def parse(url: str) -> httpx.URL:
    """Parses a service's or gateway's URL. The error does not quote it: it may hold a password."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        parsed = httpx.URL()
    is_web = parsed.scheme in ("http", "https") and parsed.host and (parsed.port or 0) < 65_536
    if not is_web or parsed.userinfo:
        raise ValueError("not a URL of http or https without a login")
    return parsed


def origin_of(url: URL | str) -> tuple[str, str, int | None]:
    """Returns scheme, host and port."""
    parsed = httpx.URL(url) if isinstance(url, str) else url
    return parsed.scheme, parsed.host, parsed.port
