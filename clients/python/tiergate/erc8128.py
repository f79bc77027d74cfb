"""Requests signed by ERC-8128, the text of August 2026: HTTP message signatures (RFC 9421) of Ethereum accounts."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class _SignedMessage(Protocol):
    @property
    def signature(self) -> bytes: ...


class MessageAccount(Protocol):
    """An account of eth-account."""

    @property
    def address(self) -> str: ...

    def sign_message(self, signable_message: Any) -> _SignedMessage: ...


@dataclass(frozen=True)
class Outgoing:
    """A request as it will be sent."""

    method: str
    scheme: str
    #: The `Host`.
    authority: str
    #: Path and query.
    target: str
    #: Names are in small letters.
    fields: Mapping[str, str]
    #: `None` if it is a stream.
    body: bytes | None


@dataclass(frozen=True)
class Coverage:
    """The components that a signature covers, in this order."""

    components: tuple[str, ...]
    label: str = "request"
    #: Chosen by the gateway.
    nonce: str | None = None


#: The longest that every verifier takes.
_VALIDITY_SECONDS = 60

#: Less binds a signature to more than one request.
_DERIVED = ("@scheme", "@authority", "@method", "@path", "@query")
#: Covered where they are sent.
_FIELDS = ("x-agent-id", "content-digest", "content-type")

_COMPONENTS_MAX = 32
_CHALLENGE_CHARACTERS_MAX = 4096


def fields_of(lines: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Joins the lines of each field as a signature covers them."""
    fields: dict[str, str] = {}
    for name, value in lines:
        before = fields.get(name.lower())
        stripped = value.strip(" \t")
        fields[name.lower()] = stripped if before is None else f"{before}, {stripped}"
    return fields


def coverage_of(request: Outgoing) -> Coverage:
    """Returns what is covered unless the gateway asks for more."""
    sent = {*request.fields, *(["content-digest"] if request.body else [])}
    return Coverage((*_DERIVED, *(name for name in _FIELDS if name in sent)))


_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_KEY = r"[a-z*][a-z0-9_.*-]{0,63}"
_VALUE = rf'(?:{_STRING}|[^",; ]+)'
_MEMBER = re.compile(rf"({_KEY})=\(((?:{_STRING}| )*)\)((?:; *{_KEY}(?:={_VALUE})?)*)")
_PARAMETER = re.compile(rf"; *({_KEY})(?:=({_VALUE}))?")


def coverage_asked(challenge: str, request: Outgoing) -> Coverage | None:
    """Returns the first coverage that an `Accept-Signature` asks for, that this profile allows and that the request has.

    Never one that binds the signature to less than `coverage_of` does.
    """
    if len(challenge) > _CHALLENGE_CHARACTERS_MAX:
        return None
    needed = set(coverage_of(request).components)
    sent = {*request.fields, *_DERIVED, "content-digest"} - {"signature", "signature-input"}
    for label, inner, rest in _MEMBER.findall(challenge):
        components = tuple(text[1:-1] for text in re.findall(_STRING, inner))
        parameters = {name: value for name, value in _PARAMETER.findall(rest)}
        nonce = re.sub(r"\\(.)", r"\1", parameters.get("nonce", "")[1:-1])
        is_of_profile = (
            parameters.get("tag") == '"erc8128"'
            and parameters.keys() <= {"created", "expires", "nonce", "tag"}
            and not parameters.get("created")
            and not parameters.get("expires")
            and re.fullmatch('(".*")?', parameters.get("nonce", ""))
            and len(nonce) <= 128
        )
        is_coverable = len(components) == len(set(components)) <= _COMPONENTS_MAX and needed <= set(components) <= sent
        if is_of_profile and is_coverable:
            return Coverage(components, label, nonce if parameters.get("nonce") else None)
    return None


def sign(account: MessageAccount, chain_id: int, request: Outgoing, coverage: Coverage, now: int) -> dict[str, str]:
    """Returns the headers that sign a request. `now` is Unix time in seconds. Blocks."""
    from eth_account.messages import encode_defunct

    if request.body is None:
        raise ValueError("a stream can't be signed: give the body whole")
    headers = {}
    if "content-digest" in coverage.components:
        digest = base64.b64encode(hashlib.sha256(request.body).digest()).decode()
        headers["Content-Digest"] = f"sha-256=:{digest}:"
    values = _values(request) | fields_of(headers.items())
    lines = []
    for name in coverage.components:
        # The text that is signed is ASCII. Another value would be a line of its own.
        if not re.fullmatch(r"[\t -~]*", values[name]):
            raise ValueError(f"the request's {name} can't be signed")
        lines.append(f'"{name}": {values[name]}')
    components = " ".join(f'"{name}"' for name in coverage.components)
    nonce = coverage.nonce if coverage.nonce is not None else secrets.token_urlsafe(16)
    quoted = re.sub(r'(["\\])', r"\\\1", nonce)
    keyid = f"eip155:{chain_id}:{account.address.lower()}"
    times = f"created={now};expires={now + _VALIDITY_SECONDS}"
    parameters = f'({components});{times};nonce="{quoted}";keyid="{keyid}";tag="erc8128"'
    base = "\n".join([*lines, f'"@signature-params": {parameters}'])
    signature = base64.b64encode(account.sign_message(encode_defunct(text=base)).signature).decode()
    return headers | {
        "Signature-Input": f"{coverage.label}={parameters}",
        "Signature": f"{coverage.label}=:{signature}:",
    }


def _values(request: Outgoing) -> dict[str, str]:
    path, _, query = request.target.partition("?")
    own_port = {"http": ":80", "https": ":443"}[request.scheme]
    return {
        **request.fields,
        "@scheme": request.scheme,
        "@authority": request.authority.lower().removesuffix(own_port),
        "@method": request.method,
        "@path": path or "/",
        "@query": f"?{query}",
    }
