"""No message, log or inspection shows a key, whatever argument it is given as."""

from __future__ import annotations

import copy
import logging
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import requests
from conftest import STRANGER, Owned, Script

import tiergate
from tiergate import AsyncTiergate, Signed, Tiergate, errors
from tiergate.assertion import assertion_keys, verify_assertion
from tiergate.fastapi import require_agent
from tiergate.requests import GatewayAuth as RequestsAuth

HEX = "47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a"
#: A private key, keys of an API, and forms of them that some check refuses.
CANARIES: list[Any] = [
    *(f"0x{HEX}", HEX, f"svc_live_v1_{HEX}", f"{HEX} \n\u00e9", f"{HEX}\ud800", f"http://{HEX}:x@a.example"),
    *(HEX.encode(), [HEX], {HEX: HEX}, -int(HEX, 16), STRANGER),
]
SHOWN = re.compile("|".join([*re.findall(".{16}", HEX), str(int(HEX, 16))[:16]]), re.IGNORECASE)
DOMAIN = tiergate.Domain(name="A", version="1", chain_id=1, verifying_contract="0x" + "1" * 40)
REFUSAL = b'{"error":"it is malformed","errorType":"VALIDATION_ERROR","details":{},"timestamp":1}'


def shown_of(result: object) -> str:
    """Everything that a log could make of it."""
    if not isinstance(result, BaseException):
        return f"{result} {result!r} {vars(result) if isinstance(result, Exception) else ''}"
    chain = "".join(traceback.format_exception(result))
    return f"{result} {result!r} {vars(result)} {chain}"


def test_no_argument_is_shown_by_an_error_an_answer_or_a_log(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    script.answers = [(400, {"Content-Type": "application/json"}, REFUSAL)]
    with Tiergate(script.url, domain=DOMAIN) as service:
        data = service.typed_data(4)

    opened = []

    def at(**options: Any) -> Tiergate:
        opened.append(Tiergate(script.url, **{"domain": DOMAIN, "retries": 0, **options}))
        return opened[-1]

    def ask(credential: Any, **options: Any) -> None:
        with httpx.Client(auth=tiergate.GatewayAuth(script.url, credential, retries=0)) as client:
            client.post(script.url, content=b"x", **options)

    def ask_by_requests(credential: Any) -> None:
        requests.post(script.url, data=b"x", auth=RequestsAuth(script.url, credential, retries=0), timeout=60)

    async def ask_async(credential: Any) -> None:
        async with httpx.AsyncClient(auth=tiergate.GatewayAuth(script.url, credential, retries=0)) as client:
            await client.post(script.url, content=b"x")

    async def rotate_async(agent: Any, signer: Any) -> None:
        async with AsyncTiergate(script.url, domain=DOMAIN, retries=0) as client:
            await client.keys.rotate(agent, signer)

    keys = assertion_keys(script.url)
    entrances: dict[str, Callable[[Any], object]] = {
        "url": lambda it: Tiergate(it),
        "http": lambda it: Tiergate(script.url, http=it).verify("k"),
        "domain": lambda it: at(domain=it).verify_signature(4, STRANGER),
        "service_name": lambda it: at(service_name=it).keys.rotate(4, lambda data: "0x"),
        "retries": lambda it: at(retries=it).verify("k"),
        "max_wait": lambda it: at(max_wait=it).verify("k"),
        "timeout": lambda it: at(timeout=it).verify("k"),
        "allow_http": lambda it: at(allow_http=it).verify("k"),
        "api_key": lambda it: at().verify(it, 4),
        "agent_id": lambda it: at().verify("k", it),
        "origin": lambda it: at().verify("k", None, it),
        "status": lambda it: at().keys.status(it),
        "operation": lambda it: at().typed_data(4, it),
        "agent": lambda it: at().typed_data(it),
        "declared_endpoint": lambda it: at().keys.generate(4, STRANGER, declared_endpoint=it),
        "signature": lambda it: at().verify_signature(4, Signed(data, it)),
        "signed": lambda it: Signed(data, it),
        "copied": lambda it: copy.copy(Signed(data, it)),
        "typed_data": lambda it: at().verify_signature(4, Signed(it, "0x")),
        "rotate async": lambda it: anyio.run(rotate_async, it, STRANGER),
        "sign async": lambda it: anyio.run(rotate_async, 4, it),
        "gateway": lambda it: tiergate.GatewayAuth(it, tiergate.by_key("k")),
        "credential": lambda it: ask(it),
        "by_key": lambda it: ask(tiergate.by_key(it)),
        "by_key called": lambda it: ask(tiergate.by_key(lambda: it)),
        "by_key read": lambda it: ask(tiergate.by_key(Path(it))),
        "by_key inspected": lambda it: tiergate.by_key(it),
        "bearer": lambda it: ask(tiergate.by_key(it, bearer=True)),
        "requests": lambda it: ask_by_requests(tiergate.by_key(it)),
        "of requests": lambda it: ask_by_requests(it),
        "async": lambda it: anyio.run(ask_async, tiergate.by_key(it)),
        "by_signature of": lambda it: ask(tiergate.by_signature(it, STRANGER, DOMAIN)),
        "by_signature by": lambda it: ask(tiergate.by_signature(4, it, DOMAIN)),
        "by_signature as": lambda it: ask(tiergate.by_signature(4, lambda data: it, DOMAIN)),
        "by_signature at": lambda it: ask(tiergate.by_signature(4, STRANGER, it)),
        "whole of": lambda it: ask(tiergate.by_message_signature(it, STRANGER, 1)),
        "whole by": lambda it: ask(tiergate.by_message_signature(4, it, 1)),
        "whole on": lambda it: ask(tiergate.by_message_signature(4, STRANGER, it)),
        "jwks": lambda it: assertion_keys(it).fetch_data(),
        "assertion": lambda it: verify_assertion(it, keys, issuer="a", tenant="b"),
        "token": lambda it: verify_assertion(f"{it}.{it}.{it}", keys, issuer="a", tenant="b"),
        "keys": lambda it: verify_assertion("a.b.c", it, issuer="a", tenant="b"),
        "issuer": lambda it: verify_assertion("a.b.c", keys, issuer=it, tenant=it),
        "agent_problem": lambda it: tiergate.agent_problem(it),
        "explain": lambda it: tiergate.explain(it),
        "agent_of": lambda it: tiergate.agent_of(it),
        "require_agent": lambda it: require_agent(it),
        "raise_for_error": lambda it: tiergate.raise_for_error(it),
    }
    for name in ("verify_signature", "profile"):
        entrances[f"{name} of"] = lambda it, name=name: getattr(at(), name)(it, STRANGER)  # type: ignore[misc]
        entrances[f"{name} by"] = lambda it, name=name: getattr(at(), name)(4, it)  # type: ignore[misc]
    for name in ("generate", "rotate", "revoke"):
        entrances[f"{name} of"] = lambda it, name=name: getattr(at().keys, name)(it, STRANGER)  # type: ignore[misc]
        entrances[f"{name} by"] = lambda it, name=name: getattr(at().keys, name)(4, it)  # type: ignore[misc]
        entrances[f"{name} as"] = lambda it, name=name: getattr(at().keys, name)(4, lambda _: it)  # type: ignore[misc]
    showing = []
    for name, call in entrances.items():
        for index, canary in enumerate(CANARIES):
            caplog.clear()
            try:
                result: object = call(canary)
            except BaseException as error:
                result = error
            while opened:
                opened.pop().close()
            if SHOWN.search(shown_of(result) + caplog.text):
                showing.append(f"{name}: canary {index}")
    assert showing == []


def test_an_issued_key_is_in_its_answer_and_not_in_what_an_inspection_shows(
    service: Tiergate, fresh: Callable[[str], Owned]
) -> None:
    agent = fresh("diamond")
    for issued in (service.keys.generate(agent.id, agent.owner), service.keys.rotate(agent.id, agent.owner)):
        assert re.fullmatch("svc_live_v1_[0-9a-f]{64}", issued.api_key)
        assert str(agent.id) in repr(issued) and issued.api_key[12:28] not in f"{issued!r} {[issued]}"


def test_an_error_after_which_a_key_may_have_been_changed_says_so_and_how_to_find_out(script: Script) -> None:
    with Tiergate(script.url, domain=DOMAIN, retries=0) as service:
        for change in (service.keys.generate, service.keys.rotate, service.keys.revoke):
            for script.answers in ([None], [(502, {}, b"<html>")]):  # type: ignore[assignment]
                with pytest.raises(errors.OutcomeUnknown, match=r"may have been changed\. Ask keys\.status"):
                    change(4, STRANGER)
            script.answers = [(404, {}, b"<html>")]
            with pytest.raises(errors.NotTiergate) as raised:
                change(4, STRANGER)
            assert "changed" not in str(raised.value)
        script.answers = [None]
        for call in (lambda: service.keys.status(4), lambda: service.verify("k")):
            with pytest.raises(errors.Unreachable) as unreachable:
                call()
            assert "changed" not in str(unreachable.value)


def test_a_key_for_this_machine_does_not_go_to_a_proxy_of_the_environment(
    script: Script, elsewhere: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", elsewhere.url)
    monkeypatch.setenv("http_proxy", elsewhere.url)
    script.answers = elsewhere.answers = [(400, {"Content-Type": "application/json"}, REFUSAL)]

    async def ask() -> None:
        async with AsyncTiergate(script.url, retries=0) as service:
            await service.verify("k")

    with Tiergate(script.url, retries=0) as service, pytest.raises(errors.ValidationError):
        service.verify("k")
    with pytest.raises(errors.ValidationError):
        anyio.run(ask)
    assert (len(script.seen), len(elsewhere.seen)) == (2, 0)
