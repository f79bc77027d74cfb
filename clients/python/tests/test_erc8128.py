"""Requests signed by ERC-8128: the vectors, an independent verifier, and what the gateway asks for."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest
import requests
from conftest import Script
from eth_account import Account
from eth_account.messages import encode_defunct
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver
from http_message_signatures.algorithms import HTTPSignatureAlgorithm
from test_gateway import BARE_AFTER_REDIRECTS, SENDERS
from test_repeats import refused

from tiergate import GatewayAuth, by_message_signature, erc8128
from tiergate.erc8128 import Coverage, Outgoing
from tiergate.gateway import Credential
from tiergate.requests import GatewayAuth as RequestsAuth

VECTORS = json.loads((Path(__file__).parents[1] / "../erc8128.json").read_text())
ONE = Account.from_key((1).to_bytes(32, "big"))
DERIVED = ["@scheme", "@authority", "@method", "@path", "@query"]
FLOOR = [*DERIVED, "x-agent-id"]
OK: tuple[int, dict[str, str], bytes] = (200, {}, b"")
HTTPX = pytest.mark.parametrize("library", [httpx, httpx2], ids=lambda library: library.__name__)


class Keys(HTTPSignatureKeyResolver):
    """A key is its address."""

    def resolve_public_key(self, key_id: str) -> str:
        return key_id


class Eip191(HTTPSignatureAlgorithm):
    """`personal_sign` of an account."""

    algorithm_id = "eip191"
    bases: list[str] = []

    def __init__(self, public_key: Any = None, private_key: Any = None) -> None:
        self.account = str(public_key)

    def verify(self, signature: bytes, message: bytes) -> None:
        self.bases.append(message.decode())
        signer = Account.recover_message(encode_defunct(message), signature=signature)
        if self.account.rsplit(":", 1)[1] != signer.lower():
            raise ValueError("another account signed")


class AtAnyTime(HTTPMessageVerifier):
    def validate_created_and_expires(self, sig_input: Any, max_age: Any = None) -> None: ...


class Lines(list[tuple[str, str]]):
    """Fields as they stand on the wire."""

    def items(self) -> Lines:
        return self


def verified(method: str, url: str, fields: Any, body: bytes, kind: type = HTTPMessageVerifier) -> Any:
    """Verifies a request by code that knows nothing of us. Returns what it says."""
    message = SimpleNamespace(method=method, url=url, headers=Lines(fields))
    verifier = kind(signature_algorithm=Eip191, key_resolver=Keys())
    (told,) = verifier.verify(message, expect_tag="erc8128", require_components=DERIVED, body=body)
    return told


def outgoing(vector: dict[str, Any]) -> Outgoing:
    url = httpx.URL(vector["url"])
    fields = erc8128.fields_of(vector["headers"])
    host, target = url.netloc.decode(), url.raw_path.decode()
    return Outgoing(vector["method"], url.scheme, host, target, fields, (vector["body"] or "").encode())


def of_vector(vector: dict[str, Any]) -> Coverage:
    return Coverage(tuple(vector["covered"]), vector["label"], vector["nonce"])


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_vectors_are_signed_and_an_independent_verifier_builds_the_same_base(vector: dict[str, Any]) -> None:
    account, chain = Account.from_key(vector["privateKey"]), int(vector["keyid"].split(":")[1])
    signed = erc8128.sign(account, chain, outgoing(vector), of_vector(vector), vector["created"])
    digest = {"Content-Digest": value for name, value in vector["headers"] if name == "Content-Digest"}
    assert signed == {
        **digest,
        "Signature-Input": f"{vector['label']}={vector['params']}",
        "Signature": f"{vector['label']}=:{vector['signature']}:",
    }
    # That library compares no host that was written in capitals.
    url = vector["url"].replace("API.Example", "api.example")
    fields = [*vector["headers"], *signed.items()][: len(vector["headers"])]
    fields += [(name, value) for name, value in signed.items() if name != "Content-Digest"]
    told = verified(vector["method"], url, fields, (vector["body"] or "").encode(), AtAnyTime)
    assert (Eip191.bases[-1], told.nonce) == (vector["base"], vector["nonce"])


@pytest.mark.parametrize(
    ("scheme", "host", "expected"),
    [
        ("https", "API.Example:443", "api.example"),
        ("http", "API.Example:80", "api.example"),
        ("http", "api.example:443", "api.example:443"),
        ("https", "[::1]:443", "[::1]"),
        ("https", "[::443]", "[::443]"),
    ],
)
def test_a_host_is_signed_in_small_letters_and_without_the_schemes_own_port(scheme: str, host: str, expected: str) -> None:
    erc8128.sign(Noting(), 1, Outgoing("GET", scheme, host, "/", {}, b""), Coverage(("@authority",)), 0)
    assert Noting.signed[-1].splitlines()[0] == f'"@authority": {expected}'


class Noting:
    """An account that signs nothing."""

    address = ONE.address
    signed: list[str] = []

    def sign_message(self, signable_message: Any) -> Any:
        self.signed.append(signable_message.body.decode())
        return ONE.sign_message(signable_message)


def raw(request: Any) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in request.headers.raw]


def asking(vector: dict[str, Any]) -> dict[str, str]:
    covered = " ".join(f'"{name}"' for name in vector["covered"])
    nonce = re.sub(r'(["\\])', r"\\\1", vector["nonce"])
    return {"Accept-Signature": f'{vector["label"]}=({covered});created;expires;nonce="{nonce}";tag="erc8128"'}


@pytest.mark.parametrize("vector", [each for each in VECTORS if each["agent"]], ids=lambda vector: vector["name"])
@HTTPX
def test_the_adapter_sends_the_request_of_the_vector(
    monkeypatch: pytest.MonkeyPatch, vector: dict[str, Any], library: Any
) -> None:
    monkeypatch.setattr("tiergate.gateway.time.time", lambda: vector["created"])
    sent: list[Any] = []

    def answer(request: Any) -> Any:
        sent.append(raw(request))
        return library.Response(401, headers=asking(vector)) if len(sent) == 1 else library.Response(200)

    credential = by_message_signature(
        vector["agent"], Account.from_key(vector["privateKey"]), int(vector["keyid"].split(":")[1])
    )
    own = [(name, value.strip()) for name, value in vector["headers"] if name not in ("X-Agent-Id", "Content-Digest")]
    auth = GatewayAuth(vector["url"], credential, allow_http=httpx.URL(vector["url"]).host)
    with library.Client(auth=auth, transport=library.MockTransport(answer)) as http:
        body = None if vector["body"] is None else vector["body"].encode()
        assert http.request(vector["method"], vector["url"], headers=own, content=body).status_code == 200
    shown = erc8128.fields_of(sent[1])
    assert shown["signature-input"] == f"{vector['label']}={vector['params']}"
    assert shown["signature"] == f"{vector['label']}=:{vector['signature']}:"
    expected = erc8128.fields_of(vector["headers"])
    assert {name: shown[name] for name in expected} == expected


CONTENTS: list[tuple[str, dict[str, Any]]] = [
    ("GET", {}),
    ("GET", {"params": {"a": "b c", "ü": "東京&%2f'\"`{}|^\\"}}),
    ("DELETE", {"headers": {"Content-Type": "text/plain"}}),
    ("POST", {"content": "Prüfung"}),
    ("POST", {"content": b""}),
    ("PUT", {"content": b"\0\x80\xff", "headers": {"Content-Digest": "sha-256=:AAAA:", "X-Agent-Id": "8"}}),
    ("PATCH", {"json": {"a": "ü"}}),
    ("POST", {"data": {"a": "b c", "ü": "&"}}),
    ("PROPFIND", {}),
]


@pytest.mark.parametrize("path", ["/items", "", "/items?", "/a b/%2F;v=1/./x/../ü?q=1&&x#part"])
@pytest.mark.parametrize(("method", "options"), CONTENTS)
@pytest.mark.parametrize("library", ["httpx", "httpx2", "asynchronous", "requests"])
def test_an_independent_verifier_takes_what_arrives(
    script: Script, slept: list[float], library: str, method: str, options: dict[str, Any], path: str
) -> None:
    script.answers = [(429, {"Retry-After": "1"}, b""), OK]
    credential = by_message_signature(7, ONE, 1)

    async def run() -> int:
        async with httpx.AsyncClient(auth=GatewayAuth(script.url, credential)) as http:
            return (await http.request(method, script.url + path, **options)).status_code

    match library:
        case "httpx" | "httpx2":
            with (httpx if library == "httpx" else httpx2).Client(auth=GatewayAuth(script.url, credential)) as http:
                status = http.request(method, script.url + path, **options).status_code
        case "asynchronous":
            status = asyncio.run(run())
        case _:
            # `data` is the name of `content` there.
            own = {"data" if name == "content" else name: value for name, value in options.items()}
            with requests.Session() as session:
                session.trust_env, session.auth = False, RequestsAuth(script.url, credential)
                status = session.request(method, script.url + path, **own).status_code
    assert (status, len(script.seen)) == (200, 2)
    nonces = set()
    for method, target, headers, body in script.seen:
        told = verified(method, f"http://{headers['host']}{target}", headers.items(), body)
        covered = {name.strip('"') for name in told.covered_components}
        assert covered >= {*FLOOR, *(["content-digest"] if body else []), *({"content-type"} & headers.keys())}
        assert (headers["x-agent-id"], told.parameters["keyid"]) == ("7", f"eip155:1:{ONE.address.lower()}")
        assert told.parameters["expires"] - told.parameters["created"] == 60
        assert abs(told.parameters["created"] - time.time()) < 30
        assert len(base64.urlsafe_b64decode(told.nonce + "==")) == 16
        nonces.add(told.nonce)
    assert len(nonces) == 2


@pytest.mark.parametrize("altered", range(6))
def test_the_independent_verifier_refuses_what_was_altered(script: Script, altered: int) -> None:
    script.answers = [OK]
    httpx.post(script.url + "/items?a=1", content=b"body", auth=GatewayAuth(script.url, by_message_signature(7, ONE, 1)))
    method, target, headers, body = script.seen[0]
    method = "PUT" if altered == 0 else method
    url = f"http{'s' * (altered == 1)}://{headers['host']}{target}{'2' * (altered == 2)}"
    headers |= {"x-agent-id": "8"} if altered == 3 else {}
    headers |= {"signature-input": headers["signature-input"].replace("expires=1", "expires=2")} if altered == 4 else {}
    with pytest.raises(Exception, match="account signed|address|digest|Digest"):
        verified(method, url, headers.items(), b"bodY" if altered == 5 else body)


def test_a_stream_is_refused_before_anything_is_sent(script: Script, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"body"

    async def run() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"body"

        async with httpx.AsyncClient(auth=auth) as http:
            await http.post(script.url, content=pieces())

    script.answers = [OK]
    credential = by_message_signature(7, ONE, 1)
    auth = GatewayAuth(script.url, credential)
    (tmp_path / "upload").write_bytes(b"body")
    refusal = pytest.raises(ValueError, match="a stream can't be signed: give the body whole")
    with refusal:
        httpx.post(script.url, content=pieces(), auth=auth)
    with refusal:
        httpx.post(script.url, files={"file": b"body"}, auth=auth)
    with refusal:
        asyncio.run(run())
    with (tmp_path / "upload").open("rb") as file:
        for stream in (pieces(), file):
            with refusal:
                requests.post(script.url, data=stream, auth=RequestsAuth(script.url, credential))
    assert script.seen == []
    # A form that was read is whole.
    with httpx.Client(auth=auth) as http:
        form = http.build_request("POST", script.url, files={"file": b"body"})
        form.read()
        http.send(form)
    method, target, headers, body = script.seen[0]
    verified(method, script.url + target, headers.items(), body)


@pytest.mark.parametrize("name", ["Signature", "Signature-Input"])
def test_a_signature_of_the_request_is_not_overwritten(script: Script, name: str) -> None:
    credential = by_message_signature(7, ONE, 1)
    with pytest.raises(ValueError, match=f"a {name} of its own"):
        httpx.get(script.url, auth=GatewayAuth(script.url, credential), headers={name: "a=:AA==:"})
    with pytest.raises(ValueError, match=f"a {name} of its own"):
        requests.get(script.url, auth=RequestsAuth(script.url, credential), headers={name: "a=:AA==:"})
    assert script.seen == []


def test_a_field_that_no_signature_can_cover_is_refused(script: Script) -> None:
    with pytest.raises(ValueError, match="content-type can't be signed"):
        auth = GatewayAuth(script.url, by_message_signature(7, ONE, 1))
        httpx.get(script.url, headers=[(b"Content-Type", "text/ü".encode())], auth=auth)
    assert script.seen == []


def test_agents_and_chains_that_are_none_are_refused() -> None:
    wrong: list[tuple[int | str, int]] = [("-1", 1), (-1, 1), (2**256, 1), ("x", 1), (7, 0), (7, -1)]
    for agent, chain in wrong:
        with pytest.raises(ValueError):
            by_message_signature(agent, ONE, chain)


MORE = [*FLOOR, "content-digest", "content-type", "x-note"]
REQUEST = Outgoing("POST", "https", "api.example", "/", {"content-type": "text/plain", "x-note": "a"}, b"body")


def challenge(components: list[str], parameters: str = ';created;expires;tag="erc8128"') -> str:
    return "request=(" + " ".join(f'"{name}"' for name in components) + ")" + parameters


def without(name: str) -> list[str]:
    return [each for each in MORE if each != name]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (challenge(MORE), Coverage(tuple(MORE))),
        (challenge(MORE[::-1]), Coverage(tuple(MORE[::-1]))),
        (challenge(MORE[:-1], ';nonce="a\\"b";tag="erc8128"'), Coverage(tuple(MORE[:-1]), nonce='a"b')),
        (
            f'a=("@method";req "x"), b={challenge(MORE, "")[8:]};tag="other",c=();tag="erc8128" , '
            f'd=( {challenge(MORE, "")[9:-1]} ); created;expires;tag="erc8128"',
            Coverage(tuple(MORE), "d"),
        ),
        (challenge(MORE[:-1]), None),
        (challenge([*MORE, "x-other"]), None),
        (challenge([*MORE, "signature"]), None),
        (challenge([*MORE, "@target-uri"]), None),
        (challenge([*MORE, "x-note"]), None),
        *((challenge(without(name)), None) for name in (*FLOOR, "content-digest", "content-type")),
        (challenge(MORE, ';created;expires;tag="other"'), None),
        (challenge(MORE, ";created;expires"), None),
        (challenge(MORE, ';tag="erc8128";alg="eip191"'), None),
        (challenge(MORE, ';tag="erc8128";keyid="eip155:1:0x00"'), None),
        (challenge(MORE, ';created=1;expires;tag="erc8128"'), None),
        (challenge(MORE, ';nonce=1;tag="erc8128"'), None),
        (challenge(MORE, f';nonce="{"n" * 129}";tag="erc8128"'), None),
        (challenge(MORE, f';tag="erc8128";{" " * 4096}created'), None),
        ('"@method" ())(=', None),
        ("", None),
    ],
)
def test_an_accept_signature_is_followed_only_to_more_that_the_request_has(asked: str, expected: Coverage | None) -> None:
    assert by_message_signature(7, ONE, 1).asked(asked, REQUEST) == expected


def test_no_signature_covers_the_one_before() -> None:
    again = replace(REQUEST, fields={**REQUEST.fields, "signature": "a=:AA==:", "signature-input": "a=()"})
    for name in ("signature", "signature-input"):
        assert erc8128.coverage_asked(challenge([*FLOOR, "content-digest", "content-type", name]), again) is None


@pytest.mark.parametrize("send", SENDERS)
def test_an_accept_signature_of_the_gateway_is_followed_once(
    script: Script, slept: list[float], send: Callable[[str, str, Credential], int]
) -> None:
    asked = [*FLOOR[::-1], "user-agent", "content-digest"]
    script.answers = [(401, {"Accept-Signature": challenge(asked)}, b"")]
    assert send(script.url, script.url, by_message_signature(7, ONE, 1)) == 401
    assert [body for *_, body in script.seen] == [b"body"] * 2 and sum(slept) == 0
    told = [verified(method, script.url + target, fields.items(), body) for method, target, fields, body in script.seen]
    covered = [[name.strip('"') for name in each.covered_components][:-1] for each in told]
    assert covered == [[*FLOOR, "content-digest"], asked]
    assert told[0].nonce != told[1].nonce

    # The API's own comes after the request was charged.
    script.seen.clear()
    script.answers = [(401, {"Accept-Signature": challenge(asked), "X-RateLimit-Limit": "16"}, b"")]
    assert send(script.url, script.url, by_message_signature(7, ONE, 1)) == 401
    assert len(script.seen) == 1


@pytest.mark.parametrize("send", BARE_AFTER_REDIRECTS)
def test_a_redirect_is_signed_for_itself_and_not_as_the_request_before_it_was_asked(
    script: Script, send: Callable[[str, str, Credential], int]
) -> None:
    asked = [*FLOOR, "content-digest", "content-length"]
    script.answers = [
        (401, {"Accept-Signature": challenge(asked)}, b""),
        (303, {"Location": "/b?c"}, b""),
        (401, {}, b""),
        OK,
    ]
    assert send(script.url, script.url, by_message_signature(7, ONE, 1)) == 200
    assert [method for method, *_ in script.seen] == ["POST", "POST", "GET", "GET"]
    assert "signature" not in script.seen[2][2]
    method, target, headers, body = script.seen[3]
    verified(method, script.url + target, headers.items(), body)


@pytest.mark.parametrize("send", SENDERS)
def test_what_the_gateway_refused_for_now_is_signed_anew(
    script: Script, slept: list[float], send: Callable[[str, str, Credential], int]
) -> None:
    script.answers = [refused(503, "RPC_ERROR"), refused(503, "OVERLOADED", retry_after=1), OK]
    assert send(script.url, script.url, by_message_signature(7, ONE, 1)) == 200
    told = [verified(method, script.url + target, fields.items(), body) for method, target, fields, body in script.seen]
    assert len({each.nonce for each in told}) == 3


def refused_for(reason: str, ahead: int, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """A 401 of a gateway whose clock is so many seconds ahead. It asks for what every 401 asks for."""
    now = int((time.time() + ahead) * 1_000)
    body = {"error": "No", "errorType": "SIGNATURE_INVALID", "reason": reason, "details": {}, "timestamp": now}
    sent = {"Content-Type": "application/json", "Accept-Signature": challenge([*FLOOR, "content-digest"]), **headers}
    return 401, sent, json.dumps(body).encode()


def created(script: Script) -> list[float]:
    inputs = [headers["signature-input"] for _, _, headers, _ in script.seen]
    return [int(match[1]) - time.time() for each in inputs if (match := re.search(r";created=(\d+);", each))]


@pytest.mark.parametrize(("reason", "ahead"), [("request_expired", 7_200), ("request_not_yet_valid", -7_200)])
@pytest.mark.parametrize("send", SENDERS)
def test_a_wrong_clock_is_corrected_once_by_the_gateways_and_stays_so(
    script: Script, slept: list[float], send: Callable[[str, str, Credential], int], reason: str, ahead: int
) -> None:
    script.answers = [refused_for(reason, ahead), OK]
    credential = by_message_signature(7, ONE, 1)
    assert [send(script.url, script.url, credential) for _ in range(2)] == [200, 200]
    wrong, *right = created(script)
    assert abs(wrong) < 30 and len(right) == 2 and all(abs(each - ahead) < 30 for each in right)


@pytest.mark.parametrize(
    ("count", "answers"),
    [
        (1, [refused_for("request_expired", 90_000)]),
        (1, [refused_for("bad_signature", 7_200)]),
        (1, [refused_for("request_expired", 7_200, **{"X-RateLimit-Limit": "16"})]),
        (2, [refused_for("request_expired", ahead) for ahead in (600, 1_200, 1_800)]),
    ],
)
@pytest.mark.parametrize("send", SENDERS)
def test_a_clock_is_not_corrected_for_other_words_nor_twice(
    script: Script,
    slept: list[float],
    send: Callable[[str, str, Credential], int],
    count: int,
    answers: list[tuple[int, dict[str, str], bytes]],
) -> None:
    script.answers = list(answers)
    assert send(script.url, script.url, by_message_signature(7, ONE, 1)) == 401
    assert len(script.seen) == count


@pytest.mark.parametrize("send", SENDERS)
def test_a_gateway_that_can_verify_no_signature_now_is_asked_again_with_another_nonce(
    script: Script, slept: list[float], send: Callable[[str, str, Credential], int]
) -> None:
    body = {"error": "Later", "errorType": "REPLAY_DETECTED", "details": {}, "timestamp": 0}
    text = json.dumps({**body, "reason": "signature_verification_unavailable"}).encode()
    script.answers = [(503, {"Content-Type": "application/json", "Retry-After": "7"}, text), OK]
    assert send(script.url, script.url, by_message_signature(7, ONE, 1)) == 200
    assert slept == [7.0]
    told = [verified(method, script.url + target, fields.items(), body) for method, target, fields, body in script.seen]
    assert len({each.nonce for each in told}) == 2


def test_hooks_and_logs_see_no_signature(script: Script) -> None:
    script.answers = [OK]
    read: list[object] = []
    with httpx.Client(event_hooks={"request": [lambda request: read.append(dict(request.headers))]}) as http:
        http.post(script.url, content=b"x", auth=GatewayAuth(script.url, by_message_signature(7, ONE, 1)))
    assert len(read) == 1 and "ignature" not in repr(read) and "signature" in script.seen[0][2]
