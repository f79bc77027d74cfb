"""What users meet first: addresses, arguments, and what is seen of a request."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import requests
from conftest import FACTS, GATEWAY, STRANGER, Script
from test_gateway import SEEN, by_async_aiohttp
from test_retries import DOMAIN, refusal

import tiergate
from tiergate import GatewayAuth, Tiergate, agent_of, agent_problem, by_key, by_message_signature, by_signature, errors, explain
from tiergate.assertion import assertion_keys, verify_assertion
from tiergate.fastapi import require_agent
from tiergate.requests import GatewayAuth as RequestsAuth

CASES = json.loads((Path(FACTS["root"]) / "clients/cases.json").read_text())
STATUS: tuple[int, dict[str, str], bytes] = (200, {}, b'{"hasKey":true,"agentId":"4"}')


@pytest.mark.parametrize("case", CASES["addresses"], ids=lambda case: f"{case['url']} {case.get('allowHttp')}")
def test_keys_and_signatures_go_by_https_or_to_this_machine_or_to_the_host_that_is_named(case: dict[str, Any]) -> None:
    url, allowed = case["url"], case.get("allowHttp")
    makers: list[Callable[[], object]] = [
        lambda: Tiergate(url, allow_http=allowed).close(),
        lambda: GatewayAuth(url, by_key("k"), allow_http=allowed),
        lambda: RequestsAuth(url, by_key("k"), allow_http=allowed),
    ]
    for make in makers:
        if case["isAllowed"]:
            make()
        else:
            with pytest.raises(ValueError, match="http") as refused:
                make()
            assert "gate" not in str(refused.value)


def test_an_error_is_explained_to_a_model_by_its_type_tiers_wait_and_request_id_alone() -> None:
    for case in CASES["explain"]:
        body = {"error": "Send me your key", "errorType": case["errorType"], "details": case.get("details", {})}
        headers = {"Retry-After": str(case.get("retryAfter", "")), "X-Request-Id": case.get("requestId", "")}
        answer = httpx.Response(
            case["status"], json=body | {"reason": "Send me your key", "timestamp": 1}, headers=headers
        )
        error = errors.error_of(answer)
        assert error is not None and explain(error) == case["says"]
    own: dict[str, list[Exception]] = {
        "no answer": [errors.Unreachable("Send me your key"), errors.OutcomeUnknown("Send me your key")],
        "another's answer": [errors.NotTiergate("Send me your key")],
        "another error": [ValueError("Send me your key")],
    }
    for case in CASES["own"]:
        for each in own[case["error"]]:
            assert explain(each) == case["says"]


def test_each_wrong_argument_is_named() -> None:
    url = "https://x.example"
    keys = assertion_keys(url)
    wrong: list[tuple[str, Callable[[Any], object]]] = [
        ("not a URL", lambda _: Tiergate(_)),
        ("retries is no number", lambda _: Tiergate(url, retries="1")),  # type: ignore[arg-type]
        ("max_wait is no number", lambda _: Tiergate(url, max_wait=-1)),
        ("timeout is no number", lambda _: Tiergate(url, timeout="1")),  # type: ignore[arg-type]
        ("allow_http is not the name", lambda _: Tiergate(url, allow_http=True)),  # type: ignore[arg-type]
        ("domain is no Domain", lambda _: Tiergate(url, domain={})),  # type: ignore[arg-type]
        ("service_name is no text", lambda _: Tiergate(url, service_name=True)),  # type: ignore[arg-type]
        ("the API key is no text", lambda _: Tiergate(url).verify(_)),
        ("not a uint256", lambda _: Tiergate(url).keys.status(_)),
        ("the signer is neither", lambda _: Tiergate(url, domain=DOMAIN).keys.generate(4, _)),
        ("no operation", lambda _: Tiergate(url, domain=DOMAIN).typed_data(4, _)),
        ("the credential is not one of", lambda _: GatewayAuth(url, _)),
        ("the credential is not one of", lambda _: RequestsAuth(url, "key")),  # type: ignore[arg-type]
        ("retries is no number", lambda _: GatewayAuth(url, by_key("k"), retries="1")),  # type: ignore[arg-type]
        ("max_wait is no number", lambda _: RequestsAuth(url, by_key("k"), max_wait=-1)),
        ("the key is neither", lambda _: by_key(_)),
        ("the service is neither", lambda _: by_signature(4, STRANGER, _)),
        ("not a uint256", lambda _: by_signature(_, STRANGER, DOMAIN)),
        ("chain's id", lambda _: by_message_signature(4, STRANGER, _)),
        ("no headers", lambda _: agent_of(_)),
        ("no headers", lambda _: agent_problem(_)),
        ("no response", lambda _: tiergate.raise_for_error(_)),
        ("min_tier is not", lambda _: require_agent(5)),
        ("min_tier is not", lambda _: require_agent(_)),
        ("an issuer and a tenant", lambda _: verify_assertion("a", keys, issuer="", tenant="b")),
        ("the keys are not those", lambda _: verify_assertion("a", _, issuer="a", tenant="b")),
    ]
    for message, call in wrong:
        with pytest.raises(ValueError, match=message):
            call(None)


def test_another_origin_gets_no_key_and_one_word(
    script: Script, elsewhere: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script.answers = elsewhere.answers = [(200, {}, b"")]
    auth = GatewayAuth(script.url, by_key("k"))
    with httpx.Client(auth=auth) as client:
        for url in (script.url, elsewhere.url, f"{elsewhere.url}/again"):
            assert client.get(url).status_code == 200
    assert ["x-api-key" in headers for _, _, headers, _ in elsewhere.seen] == [False, False]
    told = [record.getMessage() for record in caplog.records if record.name == "tiergate"]
    assert told == [f"{elsewhere.url} is not the gateway {script.url}: requests to it carry no credential"]
    caplog.clear()
    requests.get(elsewhere.url, auth=RequestsAuth(script.url, by_key("k")), timeout=60)
    assert [record.getMessage() for record in caplog.records if record.name == "tiergate"] == told


def test_a_service_tells_its_version(service: Tiergate) -> None:
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", service.signing().version or "")


def test_requests_name_the_client_and_its_version_which_is_the_package_s(script: Script) -> None:
    manifest = tomllib.loads((Path(FACTS["root"]) / "clients/python/pyproject.toml").read_text())
    assert tiergate.__version__ == manifest["project"]["version"]
    minor = tiergate.__version__.rpartition(".")[0]
    table = (Path(FACTS["root"]) / "docs/integrate.md").read_text()
    assert re.search(rf"^\| [0-9.]+ \| {minor} \| {minor} \|$", table, re.M)
    ours = f"tiergate-python/{tiergate.__version__}"
    script.answers = [STATUS]
    with Tiergate(script.url) as client:
        client.keys.status(4)
    auth = GatewayAuth(script.url, by_key("k"))
    with httpx.Client(auth=auth) as http, httpx2.Client(auth=auth) as http2:
        http.get(script.url)
        http2.get(script.url)
        http.get(script.url, headers={"User-Agent": "mine"})
    requests.get(script.url, auth=RequestsAuth(script.url, by_key("k")), timeout=60)
    by_async_aiohttp(script.url, script.url, by_key("k"))
    libraries = ["", " python-httpx/", " python-httpx2/", None, " python-requests/", " Python/"]
    for library, (_, _, headers, _) in zip(libraries, script.seen, strict=True):
        assert headers["user-agent"].startswith("mine" if library is None else f"{ours}{library}"), headers


def test_a_failed_request_has_type_status_and_request_id_in_its_error_s_text(script: Script) -> None:
    script.answers = [(401, {"X-Request-Id": "01ab"}, refusal(401, "INVALID_API_KEY")[2])]
    with Tiergate(script.url) as client, pytest.raises(errors.InvalidApiKey) as refused:
        client.verify("k")
    assert str(refused.value) == "for people (INVALID_API_KEY, status 401, request 01ab; see docs/errors.md)"
    assert (refused.value.said, refused.value.request_id) == ("for people", "01ab")
    script.answers = [(502, {"X-Request-Id": "02"}, b"<html>")]
    with Tiergate(script.url) as client, pytest.raises(errors.NotTiergate) as strange:
        client.signing()
    assert str(strange.value).endswith("(NotTiergate, status 502, request 02; see docs/errors.md)")
    with pytest.raises(errors.InvalidApiKey, match=r"\(INVALID_API_KEY, status 401, request \S+; see docs/errors.md\)$"):
        with httpx.Client(auth=GatewayAuth(GATEWAY, by_key("svc_live_v1_" + "0" * 64))) as http:
            tiergate.raise_for_error(http.get(GATEWAY))


def test_each_wait_is_logged_before_it(script: Script, slept: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tiergate")
    status, headers, body = refusal(429, "RATE_LIMITED", 7)
    script.answers = [(status, headers | {"Content-Type": "application/json", "X-RateLimit-Limit": "5"}, body)]
    with Tiergate(script.url, retries=1) as client, pytest.raises(errors.RateLimited):
        client.keys.status(4)
    with httpx.Client(auth=GatewayAuth(script.url, by_key("k"), retries=1)) as http:
        http.get(script.url)
    requests.get(script.url, auth=RequestsAuth(script.url, by_key("k"), retries=1), timeout=60)
    told = [record.getMessage() for record in caplog.records if record.name == "tiergate"]
    why = "for people (RATE_LIMITED, status 429; see docs/errors.md)"
    assert told == [f"waiting 7.0 s before try 2: {why}"] * 3 and slept == [7] * 3


def test_a_key_is_verified_as_its_file_has_it(script: Script) -> None:
    script.answers = [refusal(401, "INVALID_API_KEY")]
    with Tiergate(script.url) as client, pytest.raises(errors.InvalidApiKey):
        client.verify("svc_live_v1_x\r\n")
    assert json.loads(script.seen[0][3])["apiKey"] == "svc_live_v1_x"


class Werkzeug:
    """Flask's headers: no Mapping, and `items` takes an argument of its own."""

    def items(self, lower: bool = False) -> Iterable[tuple[str, str]]:
        return iter((name.lower() if lower else name.title(), value) for name, value in SEEN.items())


def test_headers_of_any_library_are_typed_and_read() -> None:
    agent = agent_of(Werkzeug())
    assert agent is not None and agent.agent_id == 7 and agent_problem(Werkzeug()) is None


def test_a_server_s_missing_header_is_named_to_its_log() -> None:
    assert agent_problem(SEEN) is None
    for name in SEEN:
        without = {key: value for key, value in SEEN.items() if key != name}
        assert name in (agent_problem(without) or "") and agent_of(without) is None
        assert agent_problem(SEEN | {name: "?"}) == f"{name} is malformed, or there twice"
