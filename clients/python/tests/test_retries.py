"""A server that misbehaves: what is repeated, how long it is waited for, and what is raised."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import httpx2
import pytest
from conftest import Script

from tiergate import AsyncTiergate, Domain, GatewayAuth, Tiergate, TiergateError, TypedData, by_key, errors
from tiergate.requests import GatewayAuth as RequestsAuth

KEY = "svc_live_v1_" + "a" * 64
DOMAIN = Domain(name="n", version="1", chain_id=1, verifying_contract="0x" + "0" * 40)
Answer = tuple[int, dict[str, str], bytes]
STATUS: Answer = (200, {}, b'{"hasKey":true,"agentId":"4"}')
ISSUED: Answer = (201, {}, json.dumps({"apiKey": KEY, "agentId": "4", "message": ""}).encode())


def refusal(status: int, error_type: str, retry_after: int | None = None) -> Answer:
    body = {"error": "for people", "errorType": error_type, "details": {"agentId": "4"}, "timestamp": 1}
    return status, {} if retry_after is None else {"Retry-After": str(retry_after)}, json.dumps(body).encode()


def signer(_: TypedData) -> str:
    return "0x" + "1" * 130


def generate(url: str, **options: Any) -> object:
    with Tiergate(url, domain=DOMAIN, **options) as client:
        return client.keys.generate(4, signer)


def status(url: str, **options: Any) -> object:
    with Tiergate(url, **options) as client:
        return client.keys.status(4)


@pytest.mark.parametrize("call", [generate, status])
@pytest.mark.parametrize(("code", "kind"), [(429, "RATE_LIMITED"), (503, "RPC_ERROR"), (503, "OVERLOADED")])
def test_refusals_for_now_are_repeated_after_retry_after(
    script: Script, slept: list[float], call: Callable[..., object], code: int, kind: str
) -> None:
    script.answers = [refusal(code, kind, 7), refusal(code, kind), ISSUED if call is generate else STATUS]
    call(script.url)
    assert slept[0] == 7 and 0 < slept[1] <= 2 and len(script.seen) == 3


def test_each_repetition_is_signed_anew(script: Script, slept: list[float]) -> None:
    script.answers = [refusal(429, "RATE_LIMITED", 1), refusal(503, "OVERLOADED", 1), ISSUED]
    generate(script.url)
    assert len({json.loads(body)["nonce"] for *_, body in script.seen}) == 3


def test_waits_are_bounded(script: Script, slept: list[float]) -> None:
    script.answers = [refusal(429, "RATE_LIMITED", 61)]
    with pytest.raises(errors.RateLimited) as refused:
        status(script.url)
    assert (refused.value.retry_after, slept, len(script.seen)) == (61, [], 1)
    script.answers = [refusal(429, "RATE_LIMITED", 40)]
    with pytest.raises(errors.RateLimited):
        status(script.url)
    assert slept == [40]
    script.answers = [refusal(429, "RATE_LIMITED", 1)]
    with pytest.raises(errors.RateLimited):
        status(script.url, retries=5)
    assert slept == [40] + [1] * 5


def test_a_key_operation_whose_outcome_is_unknown_is_not_repeated(script: Script, slept: list[float]) -> None:
    script.answers = [None]
    with pytest.raises(errors.OutcomeUnknown):
        generate(script.url)
    unclear: list[tuple[Answer, type[TiergateError]]] = [
        (refusal(500, "INTERNAL_ERROR"), errors.InternalError),
        ((502, {}, b"<html>"), errors.OutcomeUnknown),
        ((503, {"Retry-After": "1"}, b"<html>"), errors.OutcomeUnknown),
        ((504, {}, b"{}"), errors.OutcomeUnknown),
        ((201, {}, b'{"apiKey":'), errors.OutcomeUnknown),
        ((200, {}, b"<html>"), errors.OutcomeUnknown),
        ((201, {}, b"[" * 100_000), errors.OutcomeUnknown),
    ]
    for answer, error in unclear:
        script.answers = [answer]
        with pytest.raises(error) as failed:
            generate(script.url)
        assert failed.value.status == answer[0]
    assert len(script.seen) == 8 and slept == []


@pytest.mark.parametrize("code", [302, 403, 404, 413])
def test_a_key_operation_that_something_else_refused_is_not_of_unknown_outcome(script: Script, code: int) -> None:
    script.answers = [(code, {}, b"<html>")]
    with pytest.raises(errors.NotTiergate):
        generate(script.url)


def verify(url: str, **options: Any) -> object:
    with Tiergate(url, **options) as client:
        return client.verify(KEY)


def verify_signature(url: str, **options: Any) -> object:
    with Tiergate(url, domain=DOMAIN, **options) as client:
        return client.verify_signature(4, signer)


def profile(url: str, **options: Any) -> object:
    with Tiergate(url, domain=DOMAIN, **options) as client:
        return client.profile(4, signer)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (status, errors.Unreachable),
        (profile, errors.Unreachable),
        (verify, errors.OutcomeUnknown),
        (verify_signature, errors.OutcomeUnknown),
        (generate, errors.OutcomeUnknown),
    ],
)
def test_broken_connections_are_not_repeated_and_tell_if_the_request_may_have_had_effects(
    script: Script, slept: list[float], call: Callable[..., object], error: type[TiergateError]
) -> None:
    script.answers = [None]
    with pytest.raises(errors.Unreachable) as failed:
        call(script.url)
    assert type(failed.value) is error and len(script.seen) == 1
    with pytest.raises(errors.Unreachable) as failed:
        # No server listens on this port.
        call("http://127.0.0.1:1")
    assert type(failed.value) is errors.Unreachable and slept == []


def test_replays_are_not_repeated(script: Script, slept: list[float]) -> None:
    script.answers = [refusal(400, "REPLAY_DETECTED", 1)]
    for call in (generate, verify_signature, profile):
        with pytest.raises(errors.ReplayDetected) as refused:
            call(script.url)
        assert refused.value.retry_after == 1
    assert len(script.seen) == 3 and slept == []


def by_asyncio(call: Callable[[AsyncTiergate], Coroutine[Any, Any, object]], url: str, **options: Any) -> object:
    async def run() -> object:
        async with AsyncTiergate(url, domain=DOMAIN, **options) as client:
            return await call(client)

    return asyncio.run(run())


def status_by_asyncio(url: str, **options: Any) -> object:
    return by_asyncio(lambda client: client.keys.status(4), url, **options)


def generate_by_asyncio(url: str, **options: Any) -> object:
    return by_asyncio(lambda client: client.keys.generate(4, signer), url, **options)


EVERYWHERE = pytest.mark.parametrize("call", [status, generate, status_by_asyncio, generate_by_asyncio])


def is_generate(call: Callable[..., object]) -> bool:
    return call in (generate, generate_by_asyncio)


@EVERYWHERE
def test_an_answer_that_drips_is_given_up_at_the_deadline(script: Script, call: Callable[..., object]) -> None:
    # Each piece is in time. They end, so that the test does too.
    pause = threading.Event()
    script.answers = [(200, {}, (b" " for _ in range(20_000) if not pause.wait(0.02)))]
    with pytest.raises(errors.Unreachable, match="ReadTimeout") as failed:
        call(script.url, timeout=2)
    pause.set()
    assert type(failed.value) is (errors.OutcomeUnknown if is_generate(call) else errors.Unreachable)


def test_an_answer_that_is_there_whole_is_taken_however_late(script: Script) -> None:
    script.answers = [ISSUED]
    with httpx.Client(timeout=10) as http:
        assert generate(script.url, http=http, timeout=1e-6)


def test_the_calls_of_a_try_end_with_it_whatever_the_client_waits_for(script: Script) -> None:
    hang = threading.Event()
    script.answers = [(200, {}, (b" " for _ in range(1) if not hang.wait(600)))]
    with Tiergate(script.url, domain=DOMAIN, timeout=600) as service:
        bounded, start = service._bounded(3), time.monotonic()
        for kind in (errors.OutcomeUnknown, errors.Unreachable):
            with pytest.raises(kind) as failed:
                bounded.keys.generate(4, signer)
            assert type(failed.value) is kind
        assert time.monotonic() - start < 300 and script.arrived.wait(60) and len(script.seen) == 1
    hang.set()


@EVERYWHERE
def test_an_answer_without_end_is_not_read_to_the_end(script: Script, call: Callable[..., object]) -> None:
    pieces = iter(range(400))
    script.answers = [(200, {}, (b" " * 65_536 for _ in pieces))]
    with pytest.raises(errors.OutcomeUnknown if is_generate(call) else errors.NotTiergate, match="too long"):
        call(script.url)
    # The rest was not even sent.
    assert next(pieces) < 400


@EVERYWHERE
def test_a_compressed_answer_is_neither_asked_for_nor_unpacked(script: Script, call: Callable[..., object]) -> None:
    script.answers = [(200, {"Content-Encoding": "gzip"}, gzip.compress(STATUS[2]))]
    with pytest.raises(errors.OutcomeUnknown if is_generate(call) else errors.NotTiergate, match="compressed"):
        call(script.url)
    assert script.seen[0][2]["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"<html>"),
        (200, {}, b"[]"),
        (200, {}, b'"text"'),
        (200, {}, b"{}"),
        (200, {}, b'{"valid":true}'),
        (302, {"Location": "https://other.example/"}, b""),
        (404, {}, b'{"error":"Not found"}'),
        (502, {}, b"Bad gateway"),
        (500, {}, b'{"error":{},"errorType":"INTERNAL_ERROR","timestamp":1}'),
        (200, {}, b"\xff\xfe"),
        (200, {}, b"[" * 100_000),
        (500, {}, b"[" * 100_000),
    ],
)
def test_an_answer_of_another_form_is_an_error_that_says_so(script: Script, answer: Answer) -> None:
    script.answers = [answer]
    with Tiergate(script.url) as client, pytest.raises(errors.NotTiergate, match="not one of Tiergate") as refused:
        client.verify(KEY)
    assert refused.value.status == answer[0] and len(script.seen) == 1


def test_only_nesting_outside_of_text_is_limited() -> None:
    assert errors.parse_json(b'["[[\\"' + b"[" * 1_000 + b'", {}' + b", []" * 1_000 + b"]")[1] == {}
    assert errors.parse_json(b"[" * 100 + b"]" * 100)
    for deep in (b'{"":' * 101, b'["\\\\"' + b",[" * 100, b'["",' + b"[" * 100, b"[\\" + b"[" * 100_000):
        with pytest.raises(ValueError, match="too deep"):
            errors.parse_json(deep)
    with pytest.raises(UnicodeDecodeError):
        errors.parse_json(('"\u0122"' + "[" * 100_000).encode("utf-16"))


def test_only_a_complete_verification_passes_for_one(script: Script) -> None:
    right: dict[str, Any] = {
        "valid": True,
        "agentId": "4",
        "owner": "0x" + "0" * 40,
        "trustTier": 4,
        "stakedAmount": "1",
        "reputation": {"totalScore": "-3", "feedbackCount": 2, "averageRating": -1.5},
        "validation": {"count": 0, "latestPassed": None, "latestEvidence": None, "latestValidator": None},
        "metadataURI": "",
        "timestamp": 1,
        "endpointMismatch": False,
        "organizations": [{"orgId": "1", "name": "Example", "verified": True}],
        "later": "fields that come later are ignored",
    }
    script.answers = [(200, {}, json.dumps(right).encode())]
    with Tiergate(script.url) as client:
        verified = client.verify(KEY)
        assert verified.reputation.total_score == -3 and verified.organizations[0].verified
        assert verified.rate_limit is None
        for field, wrong in [
            ("valid", False),
            ("valid", 1),
            ("trustTier", True),
            ("trustTier", "four"),
            ("stakedAmount", True),
            ("endpointMismatch", "false"),
            ("organizations", {}),
            ("reputation", None),
            ("owner", 4),
        ]:
            script.answers = [(200, {}, json.dumps(right | {field: wrong}).encode())]
            with pytest.raises(errors.NotTiergate, match=field):
                client.verify(KEY)
        for code in (304, 404, 500):
            script.answers = [(code, {}, json.dumps(right).encode())]
            with pytest.raises(errors.NotTiergate, match=str(code)):
                client.verify(KEY)


def test_no_error_quotes_a_key(script: Script) -> None:
    answers: list[Answer | None] = [(200, {}, f'{{"apiKey":"{KEY}'.encode()), (200, {}, ISSUED[2]), None]
    for answer in answers:
        script.answers = [answer]
        with Tiergate(script.url, retries=0) as client, pytest.raises(TiergateError) as failed:
            client.verify(KEY)
        for error in (failed.value, failed.value.__cause__):
            assert KEY[:30] not in repr(error)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "verify.example",
        "//verify.example",
        "ftp://verify.example",
        "https://",
        "https://verify.example:port",
        "https://user:secret@verify.example",
        "https://user:secret/@verify.example",
        "https://secret@verify.example",
        "https://verify.example:99999",
        "https://[::1",
    ],
)
@pytest.mark.parametrize(
    "client",
    [Tiergate, AsyncTiergate, lambda url: GatewayAuth(url, by_key(KEY)), lambda url: RequestsAuth(url, by_key(KEY))],
    ids=["blocking", "asyncio", "httpx", "requests"],
)
def test_a_url_without_a_web_address_or_with_a_login_is_refused_at_once(
    client: Callable[[str], object], url: str
) -> None:
    with pytest.raises(ValueError, match="http") as refused:
        client(url)
    assert "secret" not in repr(refused.value)
    assert refused.value.__cause__ is None and refused.value.__context__ is None


def test_a_redirect_is_not_followed_even_by_a_client_that_follows(script: Script, elsewhere: Script) -> None:
    script.answers = [(307, {"Location": elsewhere.url + "/verify"}, b"")]
    with httpx.Client(follow_redirects=True) as http, pytest.raises(errors.NotTiergate):
        Tiergate(script.url, http=http).verify(KEY)
    assert elsewhere.seen == []


def test_clients_of_httpx2_are_used_too(script: Script, slept: list[float]) -> None:
    async def run() -> None:
        async with httpx2.AsyncClient() as http:
            client = AsyncTiergate(script.url, http=http, domain=DOMAIN)
            await client.keys.generate(4, signer)
            await client.keys.generate(4, signer)

    script.answers = [refusal(429, "RATE_LIMITED", 3), ISSUED, None]
    with pytest.raises(errors.OutcomeUnknown):
        asyncio.run(run())
    script.answers = [STATUS, None]
    with httpx2.Client() as http:
        assert Tiergate(script.url, http=http).keys.status(4).has_key
        with pytest.raises(errors.Unreachable):
            Tiergate(script.url, http=http).keys.status(4)
        with pytest.raises(errors.Unreachable) as failed:
            Tiergate("http://127.0.0.1:1", http=http, domain=DOMAIN).keys.generate(4, signer)
    assert type(failed.value) is errors.Unreachable and slept == [3]


def test_the_url_may_have_a_path(script: Script) -> None:
    script.answers = [STATUS]
    status(script.url + "/tiergate/")
    assert script.seen[0][1] == "/tiergate/keys/status?agentId=4"


def test_asyncio_waits_and_raises_the_same(script: Script, slept: list[float]) -> None:
    script.answers = [refusal(503, "RPC_ERROR", 3), None]

    async def run() -> None:
        async with AsyncTiergate(script.url, domain=DOMAIN) as client:
            await client.keys.revoke(4, signer)

    with pytest.raises(errors.OutcomeUnknown):
        asyncio.run(run())
    assert slept == [3] and len(script.seen) == 2
