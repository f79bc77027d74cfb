"""What is sent again through the gateway, signers that wait, and clocks that are wrong."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
import requests
from conftest import Script
from eth_account import Account
from test_gateway import SENDERS
from test_retries import DOMAIN, ISSUED, KEY, Answer, generate, generate_by_asyncio, refusal, signer

from tiergate import AsyncTiergate, GatewayAuth, Signed, Tiergate, TypedData, by_key, by_signature, errors
from tiergate.gateway import Credential
from tiergate.requests import GatewayAuth as RequestsAuth

Send = Callable[[str, str, Credential], int]
OK: Answer = (200, {}, b"")
JSON = {"Content-Type": "application/json"}
ADAPTERS = pytest.mark.parametrize("send", SENDERS)


def refused(status: int, error_type: str, **more: Any) -> Answer:
    """A refusal with the headers of the gateway."""
    code, headers, body = refusal(status, error_type, more.pop("retry_after", None))
    return code, headers | JSON, json.dumps(json.loads(body) | more).encode()


def with_limit(answer: Answer) -> Answer:
    code, headers, body = answer
    return code, headers | {"X-RateLimit-Limit": "16"}, body


def stale(ahead: float) -> Answer:
    """A refused timestamp, by a service whose clock is so many seconds ahead."""
    told = int((time.time() + ahead) * 1_000)
    return refused(400, "REPLAY_DETECTED", details={"agentId": "4", "nonce": "1", "field": "timestamp"}, timestamp=told)


@ADAPTERS
def test_what_the_gateway_refused_before_it_forwarded_it_is_sent_again(
    script: Script, slept: list[float], send: Send
) -> None:
    script.answers = [refused(503, "OVERLOADED", retry_after=7), (429, {"Retry-After": "3"}, b"busy"), OK]
    assert send(script.url, script.url, by_key(KEY)) == 200
    assert [(body, headers["x-api-key"]) for _, _, headers, body in script.seen] == [(b"body", KEY)] * 3
    assert slept == [7, 3]
    script.answers = [refused(503, "RPC_ERROR"), OK]
    assert send(script.url, script.url, by_key(KEY)) == 200
    assert len(slept) == 3 and 0.5 <= slept[2] <= 1


@ADAPTERS
@pytest.mark.parametrize(
    "answer",
    [
        (503, {"Retry-After": "1"}, b"busy"),
        (503, {"Retry-After": "1"} | JSON, b'{"error":"busy"}'),
        (503, {"Retry-After": "1"} | JSON, b"busy"),
        # The gateway has charged it, and the API answers with what another gateway told it.
        with_limit(refused(503, "OVERLOADED", retry_after=1)),
        refused(503, "OVERLOADED", retry_after=1, details={"text": "x" * 65_536}),
        (429, {}, b"busy"),
        refused(502, "UPSTREAM_ERROR", retry_after=1),
        refused(400, "REPLAY_DETECTED", retry_after=1),
    ],
)
def test_what_may_have_been_carried_out_is_not_sent_again(
    script: Script, slept: list[float], send: Send, answer: Answer
) -> None:
    script.answers = [answer]
    for credential in (by_key(KEY), by_signature(4, signer, DOMAIN)):
        assert send(script.url, script.url, credential) == answer[0]
    assert len(script.seen) == 2 and slept == []


@ADAPTERS
def test_waits_for_the_gateway_are_bounded(script: Script, slept: list[float], send: Send) -> None:
    script.answers = [refused(503, "OVERLOADED", retry_after=61)]
    assert send(script.url, script.url, by_key(KEY)) == 503
    assert (len(script.seen), slept) == (1, [])
    script.answers = [refused(503, "OVERLOADED", retry_after=1)]
    assert send(script.url, script.url, by_key(KEY)) == 503
    assert (len(script.seen), slept) == (4, [1, 1])


def test_a_stream_is_not_sent_again(script: Script, slept: list[float]) -> None:
    script.answers = [refused(503, "OVERLOADED", retry_after=1)]

    async def run() -> int:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"body"

        async with httpx.AsyncClient(auth=GatewayAuth(script.url, by_key(KEY))) as http:
            return (await http.post(script.url, content=pieces())).status_code

    def pieces() -> Iterator[bytes]:
        yield b"body"

    assert httpx.post(script.url, content=pieces(), auth=GatewayAuth(script.url, by_key(KEY))).status_code == 503
    assert asyncio.run(run()) == 503
    assert requests.post(script.url, data=pieces(), auth=RequestsAuth(script.url, by_key(KEY))).status_code == 503
    assert len(script.seen) == 3 and slept == []


def test_another_origin_sets_no_clock_and_is_not_waited_for(script: Script, slept: list[float]) -> None:
    script.answers = [stale(7_200), refused(503, "OVERLOADED", retry_after=1)]
    for send in SENDERS:
        assert send("https://gateway.example", script.url, by_signature(4, signer, DOMAIN)) in (400, 503)
    assert len(script.seen) == len(SENDERS) and slept == []


def timestamps(script: Script) -> list[int]:
    return [int(headers.get("x-agent-timestamp") or json.loads(body)["timestamp"]) for _, _, headers, body in script.seen]


@pytest.mark.parametrize("ahead", [-7_200, 7_200])
@pytest.mark.parametrize("call", [generate, generate_by_asyncio])
def test_a_wrong_clock_is_corrected_from_the_services(
    script: Script, slept: list[float], call: Callable[[str], object], ahead: int
) -> None:
    script.answers = [stale(ahead), ISSUED]
    call(script.url)
    wrong, right = timestamps(script)
    assert abs(wrong - time.time()) < 30 and abs(right - time.time() - ahead) < 30
    assert len({json.loads(body)["nonce"] for *_, body in script.seen}) == 2


@pytest.mark.parametrize("ahead", [-7_200, 7_200])
@ADAPTERS
def test_a_wrong_clock_is_corrected_from_the_gateways_and_stays_so(
    script: Script, slept: list[float], send: Send, ahead: int
) -> None:
    script.answers = [stale(ahead), OK]
    credential = by_signature(4, signer, DOMAIN)
    assert [send(script.url, script.url, credential) for _ in range(2)] == [200, 200]
    wrong, *right = timestamps(script)
    assert abs(wrong - time.time()) < 30 and len(right) == 2
    assert all(abs(each - time.time() - ahead) < 30 for each in right)
    assert [body for *_, body in script.seen] == [b"body"] * 3


@ADAPTERS
def test_a_request_that_was_signed_before_another_one_was_told_the_time_is_signed_again(
    script: Script, slept: list[float], send: Send
) -> None:
    script.answers = [stale(7_200), OK, stale(7_200), OK]
    credential = by_signature(4, signer, DOMAIN)
    assert [send(script.url, script.url, credential) for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("ahead", [-90_000, 90_000])
def test_no_clock_is_followed_for_more_than_a_day(script: Script, slept: list[float], ahead: int) -> None:
    script.answers = [stale(ahead)]
    for call in (generate, generate_by_asyncio):
        with pytest.raises(errors.ReplayDetected) as failed:
            call(script.url)
        told = failed.value.timestamp
        assert told is not None and abs(told / 1_000 - time.time() - ahead) < 30
    for send in SENDERS:
        assert send(script.url, script.url, by_signature(4, signer, DOMAIN)) == 400
    assert len(script.seen) == 2 + len(SENDERS)


def test_a_service_that_tells_another_time_each_time_is_asked_twice(script: Script, slept: list[float]) -> None:
    def calls() -> Iterator[Callable[[], object]]:
        for call in (generate, generate_by_asyncio):
            yield lambda call=call: call(script.url)  # type: ignore[misc]
        for send in SENDERS:
            yield lambda send=send: send(script.url, script.url, by_signature(4, signer, DOMAIN))  # type: ignore[misc]

    for count, call in enumerate(calls(), 1):
        script.answers = [stale(ahead) for ahead in (600, 1_200, 1_800, 2_400)]
        try:
            assert call() == 400
        except errors.ReplayDetected:
            pass
        assert len(script.seen) == 2 * count


def test_signatures_from_elsewhere_correct_the_clock_for_the_next(script: Script) -> None:
    script.answers = [stale(7_200)]
    with Tiergate(script.url, domain=DOMAIN) as client:
        with pytest.raises(errors.ReplayDetected):
            client.verify_signature(4, Signed(client.typed_data(4), "0x"))
        assert abs(client.typed_data(4)["message"]["timestamp"] - time.time() - 7_200) < 30
    assert len(script.seen) == 1


async def asynchronous(data: TypedData) -> str:
    await asyncio.sleep(0)
    return signer(data)


class Asynchronous:
    """Has its coroutine function in `__call__`."""

    async def __call__(self, data: TypedData) -> str:
        return await asynchronous(data)


@pytest.mark.parametrize("ask", [asynchronous, Asynchronous(), lambda data: asynchronous(data)])
def test_signers_may_be_asynchronous(script: Script, ask: Any) -> None:
    script.answers = [ISSUED]

    async def run() -> None:
        async with AsyncTiergate(script.url, domain=DOMAIN) as service:
            await service.keys.generate(4, ask)
            for of in (service, DOMAIN):
                async with httpx.AsyncClient(auth=GatewayAuth(script.url, by_signature(4, ask, of))) as http:
                    await http.get(script.url)

    asyncio.run(run())
    assert len(script.seen) == 3


def test_a_signer_that_blocks_does_not_block_the_event_loop(script: Script) -> None:
    script.answers = [ISSUED]

    async def run() -> None:
        gone_on = threading.Event()

        def blocks(data: TypedData) -> str:
            asyncio_loop.call_soon_threadsafe(gone_on.set)
            assert gone_on.wait(60), "the event loop goes on while it is signed"
            gone_on.clear()
            return signer(data)

        asyncio_loop = asyncio.get_running_loop()
        async with AsyncTiergate(script.url, domain=DOMAIN) as service:
            await service.keys.generate(4, blocks)
        with Tiergate(script.url, domain=DOMAIN) as service_that_blocks:
            for of in (DOMAIN, service_that_blocks):
                async with httpx.AsyncClient(auth=GatewayAuth(script.url, by_signature(4, blocks, of))) as http:
                    await http.get(script.url)

    asyncio.run(run())
    assert len(script.seen) == 3


def test_an_account_signs_in_both_kinds_of_clients(script: Script) -> None:
    script.answers = [ISSUED]
    account = Account.create()

    async def run() -> None:
        async with AsyncTiergate(script.url, domain=DOMAIN) as service:
            await service.keys.generate(4, account)

    asyncio.run(run())
    with Tiergate(script.url, domain=DOMAIN) as service:
        service.keys.generate(4, account)
    assert len(script.seen) == 2


def test_a_blocking_client_refuses_what_is_asynchronous(script: Script) -> None:
    with Tiergate(script.url, domain=DOMAIN) as service, pytest.raises(ValueError, match="asynchronous client"):
        service.keys.generate(4, asynchronous)
    for credential in (by_signature(4, asynchronous, DOMAIN), by_signature(4, signer, AsyncTiergate(script.url))):
        with pytest.raises(ValueError, match="asynchronous client"):
            httpx.get(script.url, auth=GatewayAuth(script.url, credential))
        with pytest.raises(ValueError, match="asynchronous client"):
            requests.get(script.url, auth=RequestsAuth(script.url, credential))
    assert script.seen == []


def test_the_domain_of_signatures_is_the_services_of_today(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def well_known(name: str) -> Answer:
        domain = {"name": name, "version": "1", "chainId": 1, "verifyingContract": "0x" + "0" * 40}
        terms = {"timestampMaxAge": 300, "timestampMaxAhead": 60, "tiers": [], "tokenDecimals": 18}
        more = {"types": {}, "primaryType": "Verification", "contractSignatures": False}
        return 200, {}, json.dumps({"domain": domain} | terms | more).encode()

    signed: list[str] = []

    def notes(data: TypedData) -> str:
        signed.append(data["domain"]["name"])
        return signer(data)

    with Tiergate(script.url) as service, httpx.Client() as http:
        auth = GatewayAuth(script.url, by_signature(4, notes, service))
        script.answers = [well_known("old"), OK]
        http.get(script.url, auth=auth)
        http.get(script.url, auth=auth)
        now = time.monotonic()
        monkeypatch.setattr("tiergate.client.time.monotonic", lambda: now + 301)
        script.answers = [well_known("new"), OK]
        http.get(script.url, auth=auth)
    assert signed == ["old", "old", "new"]
