"""URLs of services and gateways."""

from __future__ import annotations

import re

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


def parse_for_secrets(url: str, allow_http: str | None) -> httpx.URL:
    """Parses the URL that keys and signatures go to.

    By plain http everybody on the way reads them, so that it has to be this machine, or the host that `allow_http` names.
    """
    parsed = parse(url)
    if allow_http is not None and not isinstance(allow_http, str):
        raise ValueError("allow_http is not the name of a host")
    # httpx names an address of IPv6 without its brackets.
    is_named = allow_http and parsed.host.lower() == allow_http.lower().strip("[]")
    if parsed.scheme != "https" and not is_this_machine(parsed.host) and not is_named:
        advice = "If the way is safe, name the host as allow_http"
        raise ValueError(f"keys and signatures go by https: others could read them on the way. {advice}")
    return parsed


def is_this_machine(host: str) -> bool:
    """True for a name or address of the loopback."""
    return re.fullmatch(r"localhost|127(\.[0-9]{1,3}){3}|::1", host) is not None


def origin_of(url: URL | str) -> tuple[str, str, int | None]:
    """Returns scheme, host and port."""
    parsed = httpx.URL(url) if isinstance(url, str) else url
    return parsed.scheme, parsed.host, parsed.port
