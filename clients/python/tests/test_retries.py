"""A server that misbehaves: what is repeated, how long it is waited for, and what is raised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest
from conftest import Script

from tiergate import AsyncTiergate, Domain, Signed, Tiergate, TiergateError, TypedData, errors

KEY = "svc_live_v1_" + "a" * 64
DOMAIN = Domain(name="n", version="1", chain_id=1, verifying_contract="0x" + "0" * 40)
Answer = tuple[int, dict[str, str], bytes]
STATUS: Answer = (200, {}, b'{"hasKey":true,"agentId":"4"}')
ISSUED: Answer = (201, {}, json.dumps({"apiKey": KEY, "agentId": "4", "message": ""}).encode())


def refusal(status: int, error_type: str, retry_after: int | None = None) -> Answer:
    body = {"error": "for people", "errorType": error_type, "details": {"agentId": "4"}, "timestamp": 1}
    return status, {} if retry_after is None else {"Retry-After": str(retry_after)}, json.dumps(body).encode()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits, which take no time."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("tiergate.client.time.sleep", waits.append)
    monkeypatch.setattr(anyio, "sleep", sleep)
    return waits


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
    script.answers = [refusal(429, "RATE_LIMITED", 1), refusal(400, "REPLAY_DETECTED", 1), ISSUED]
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
        ((502, {}, b"<html>"), errors.NotTiergate),
        ((503, {"Retry-After": "1"}, b"<html>"), errors.NotTiergate),
        ((201, {}, b'{"apiKey":'), errors.NotTiergate),
    ]
    for answer, error in unclear:
        script.answers = [answer]
        with pytest.raises(error):
            generate(script.url)
    assert len(script.seen) == 5 and slept == []


def test_reads_and_requests_that_were_never_sent_are_repeated_when_the_connection_breaks(
    script: Script, slept: list[float]
) -> None:
    script.answers = [None, STATUS]
    status(script.url)
    assert len(script.seen) == 2 and len(slept) == 1
    for call in (generate, status):
        with pytest.raises(errors.Unreachable) as failed:
            # Nobody listens on this port.
            call("http://127.0.0.1:1")
        assert type(failed.value) is errors.Unreachable
    assert len(slept) == 5


def test_a_signature_made_elsewhere_is_not_sent_twice_when_it_may_be_spent(script: Script, slept: list[float]) -> None:
    script.answers = [None]
    with Tiergate(script.url, domain=DOMAIN) as client:
        with pytest.raises(errors.OutcomeUnknown):
            client.verify_signature(4, Signed(client.typed_data(4), signer(client.typed_data(4))))
        assert len(script.seen) == 1
        with pytest.raises(errors.Unreachable):
            client.verify_signature(4, signer)
        assert len(script.seen) == 4


def test_replays_are_not_repeated_unless_the_service_says_when(script: Script, slept: list[float]) -> None:
    script.answers = [refusal(400, "REPLAY_DETECTED")]
    with pytest.raises(errors.ReplayDetected):
        generate(script.url)
    assert len(script.seen) == 1


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
    ],
)
def test_an_answer_of_another_form_is_an_error_that_says_so(
    script: Script, answer: Answer
) -> None:
    script.answers = [answer]
    with Tiergate(script.url) as client, pytest.raises(errors.NotTiergate, match="not one of Tiergate") as refused:
        client.verify(KEY)
    assert refused.value.status == answer[0] and len(script.seen) == 1


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
            ("stakedAmount", None),
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


def test_no_error_quotes_a_key_or_a_password(script: Script) -> None:
    url = script.url.replace("//", "//user:secret@")
    answers: list[Answer | None] = [(200, {}, f'{{"apiKey":"{KEY}'.encode()), (200, {}, ISSUED[2]), None]
    for answer in answers:
        script.answers = [answer]
        with Tiergate(url, retries=0) as client, pytest.raises(TiergateError) as failed:
            client.verify(KEY)
        for error in (failed.value, failed.value.__cause__):
            assert "secret" not in repr(error) and KEY[:30] not in repr(error)


def test_a_redirect_is_not_followed_even_by_a_client_that_follows(script: Script, elsewhere: Script) -> None:
    script.answers = [(307, {"Location": elsewhere.url + "/verify"}, b"")]
    with httpx.Client(follow_redirects=True) as http, pytest.raises(errors.NotTiergate):
        Tiergate(script.url, http=http).verify(KEY)
    assert elsewhere.seen == []


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
