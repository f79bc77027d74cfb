"""What differs for aiohttp, which sends each redirect as a request of its own; test_gateway.py and test_repeats.py have the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from conftest import FACTS, GATEWAY, Owned, Script
from test_erc8128 import FLOOR, ONE, challenge, verified
from test_gateway import KINDS, OK, credentials, shown
from test_keys import REFUSED
from test_repeats import refused

from tiergate import Tiergate, by_key, by_message_signature, errors
from tiergate.aiohttp import GatewayAuth, raise_for_error
from tiergate.gateway import Credential


def run(auth: GatewayAuth, calls: Callable[[aiohttp.ClientSession], Awaitable[Any]]) -> Any:
    """Also the gateways of others have their credential in the session, before and behind it."""
    others = [GatewayAuth("http://127.0.0.1:9", by_key(name)) for name in ("outer", "inner")]

    async def run() -> Any:
        async with aiohttp.ClientSession(middlewares=[others[0], auth, others[1]]) as session:
            return await calls(session)

    return asyncio.run(run())


def test_the_gateway_admits_keys_and_whole_signatures_and_its_refusals_are_typed(
    service: Tiergate, fresh: Callable[[str], Owned], upstream: Script
) -> None:
    agent, signed = fresh("diamond"), FACTS["signed"]
    upstream.answers = [OK]
    key = service.keys.generate(agent.id, agent.owner).api_key
    whole = by_message_signature(agent.id, agent.owner, service.signing().domain.chain_id)

    async def calls(session: aiohttp.ClientSession) -> list[int]:
        auth = GatewayAuth(signed, whole)
        url = signed + "/a b?q=ü&%2f=1"
        sent = [
            session.get(GATEWAY),
            session.post(url, json={"a": "ü"}, middlewares=[auth]),
            session.put(url, data={"a": "b c"}, middlewares=[auth]),
        ]
        for path, error in (("/denied", errors.Forbidden), ("/gone", errors.UpstreamError)):
            with pytest.raises(error):
                await raise_for_error(await session.get(GATEWAY + path))
        return [(await each).status for each in sent]

    assert run(GatewayAuth(GATEWAY, by_key(key)), calls) == [200] * 3
    assert {headers["x-agent-id"] for _, _, headers, _ in upstream.seen} == {str(agent.id)}


@pytest.mark.parametrize("credential", credentials(), ids=KINDS)
def test_a_redirect_gets_a_credential_of_its_own_within_the_gateway_alone(
    script: Script, elsewhere: Script, credential: Credential
) -> None:
    script.answers = [(307, {"Location": "/b"}, b""), (307, {"Location": elsewhere.url}, b""), (302, {"Location": "/c"}, b""), OK]
    elsewhere.answers = [(307, {"Location": script.url.replace("http", "HTTP") + "/transfer"}, b"")]

    async def calls(session: aiohttp.ClientSession) -> list[int]:
        followed = await session.post(script.url + "/a", data=b"body")
        elsewhere.answers = [(302, {"Location": "http://[none/"}, b"")]
        left = await session.get(elsewhere.url, allow_redirects=False)
        return [followed.status, left.status, (await session.get(script.url)).status]

    assert run(GatewayAuth(script.url, credential), calls) == [200, 302, 200]
    # What elsewhere led to gets none, also behind a further redirect. The program's next request has one.
    assert [path for _, path, _, _ in script.seen] == ["/a", "/b", "/transfer", "/c", "/"]
    assert [bool(shown(headers)) for _, _, headers, _ in script.seen] == [True, True, False, False, True]
    assert [shown(headers) for _, _, headers, _ in elsewhere.seen] == [set()] * 2
    signatures = [headers.get("x-agent-nonce", headers.get("signature")) for _, _, headers, _ in script.seen[:2]]
    assert len({*signatures}) == (2 if credential.is_timed else 1)


def test_a_redirect_is_signed_for_itself_and_not_as_the_request_before_it_was_asked(script: Script) -> None:
    asked = [*FLOOR, "content-digest", "content-type", "content-length"]
    script.answers = [(401, {"Accept-Signature": challenge(asked)}, b""), (303, {"Location": "/b?c"}, b""), OK]

    async def calls(session: aiohttp.ClientSession) -> int:
        return (await session.post(script.url, data=b"body")).status

    assert run(GatewayAuth(script.url, by_message_signature(7, ONE, 1)), calls) == 200
    assert [method for method, *_ in script.seen] == ["POST", "POST", "GET"]
    for method, target, headers, body in script.seen:
        verified(method, script.url + target, headers.items(), body)
    assert ["content-length" in headers["signature-input"] for _, _, headers, _ in script.seen] == [False, True, False]


def test_files_are_sent_again_whole_and_streams_are_neither_sent_again_nor_signed(
    script: Script, slept: list[float], tmp_path: Path
) -> None:
    (tmp_path / "upload").write_bytes(b"body")
    keys = iter(["one", "two", "three"])
    script.answers = [refused(503, "OVERLOADED", retry_after=1), OK, REFUSED, OK]

    async def pieces() -> AsyncIterator[bytes]:
        yield b"body"

    async def calls(session: aiohttp.ClientSession) -> list[int]:
        with (tmp_path / "upload").open("rb") as file:
            file_sent = (await session.post(script.url, data=file)).status
        answers = [file_sent, (await session.post(script.url, data=pieces())).status, (await session.get(script.url)).status]
        whole = GatewayAuth(script.url, by_message_signature(7, ONE, 1))
        for body, compress in ((pieces(), None), (b"body", "gzip")):
            with pytest.raises(ValueError, match="a stream can't be signed"):
                await session.post(script.url, data=body, compress=compress, middlewares=[whole])
        return answers

    assert run(GatewayAuth(script.url, by_key(lambda: next(keys))), calls) == [200, 401, 200]
    # A key that was refused with a stream is asked for anew all the same.
    told = [(headers["x-api-key"], body) for _, _, headers, body in script.seen]
    assert told == [("one", b"body"), ("one", b"body"), ("one", b"body"), ("two", b"")]


@pytest.mark.parametrize("name", ["X-API-Key", "Signature", "Signature-Input"])
def test_a_header_of_the_request_is_not_overwritten(script: Script, name: str) -> None:
    credential = by_key("k") if name == "X-API-Key" else by_message_signature(7, ONE, 1)

    async def calls(session: aiohttp.ClientSession) -> None:
        with pytest.raises(ValueError, match=f"{name} of its own"):
            await session.get(script.url, headers={name: "a=:AA==:"})

    run(GatewayAuth(script.url, credential), calls)
    assert script.seen == []


def test_a_refused_try_frees_its_connection_however_long_its_answer_is(script: Script, slept: list[float]) -> None:
    script.answers = [(429, {"Retry-After": "1"}, bytes(4_000_000)), OK]

    async def run() -> int:
        auth = GatewayAuth(script.url, by_key("k"))
        one, bounded = aiohttp.TCPConnector(limit=1), aiohttp.ClientTimeout(30)
        async with aiohttp.ClientSession(middlewares=[auth], connector=one, timeout=bounded) as session:
            return (await session.get(script.url)).status

    assert asyncio.run(run()) == 200
    assert slept == [1]
