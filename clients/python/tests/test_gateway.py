"""Credentials through the real gateway, and what redirects do with them; servers behind the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
from conftest import API, FACTS, GATEWAY, STRANGER, Owned, Script
from eth_account import Account
from fastapi import Depends, FastAPI, WebSocket

from tiergate import (
    Agent,
    AsyncTiergate,
    Domain,
    GatewayAuth,
    Tiergate,
    agent_of,
    by_key,
    by_message_signature,
    by_signature,
    errors,
    raise_for_error,
)
from tiergate.aiohttp import GatewayAuth as AiohttpAuth
from tiergate.erc8128 import Outgoing
from tiergate.fastapi import AgentRefused, agent_refused, require_agent
from tiergate.gateway import Credential
from tiergate.requests import GatewayAuth as RequestsAuth

Fresh = Callable[[str], Owned]

SEEN = {
    "x-agent-id": "7",
    "x-agent-owner": "0x" + "aA" * 20,
    "x-agent-tier": "2",
    "x-agent-staked-amount": "10000",
    "x-agent-endpoint-mismatch": "false",
}


OK: tuple[int, dict[str, str], bytes] = (200, {}, b"")


def test_the_gateway_admits_a_key_and_fresh_signatures(service: Tiergate, fresh: Fresh, upstream: Script) -> None:
    agent = fresh("diamond")
    key = service.keys.generate(agent.id, agent.owner).api_key
    upstream.answers = [OK]
    for credential in (
        by_key(key),
        by_key(key, bearer=True),
        by_signature(agent.id, agent.owner, service),
        by_signature(agent.id, agent.owner, service.signing().domain),
    ):
        with httpx.Client(auth=GatewayAuth(GATEWAY, credential)) as http:
            answers: list[Any] = [http.get(GATEWAY), http.post(GATEWAY, content=b"a body")]
        with httpx2.Client(auth=GatewayAuth(GATEWAY, credential)) as http2:
            answers += [http2.get(GATEWAY), http2.post(GATEWAY, content=b"a body")]
        with requests.Session() as session:
            session.auth, session.trust_env = RequestsAuth(GATEWAY, credential), False
            answers += [session.get(GATEWAY), session.post(GATEWAY, data=b"a body")]
        assert [answer.status_code for answer in answers] == [200] * 6

    async def run() -> list[int]:
        async with AsyncTiergate(API) as same:
            auth = GatewayAuth(GATEWAY, by_signature(agent.id, agent.owner, same))
            async with httpx.AsyncClient(auth=auth) as http, httpx2.AsyncClient(auth=auth) as http2:
                return [(await http.get(GATEWAY)).status_code, (await http2.get(GATEWAY)).status_code]

    assert asyncio.run(run()) == [200] * 2
    seen = Agent(
        agent_id=agent.id,
        owner=agent.owner.address,
        trust_tier=4,
        staked_amount=500_000 * 10**18,
        endpoint_mismatch=False,
    )
    assert [agent_of(headers) for _, _, headers, _ in upstream.seen] == [seen] * 26
    assert ask(server(), "/gold", upstream.seen[0][2]).json() == 4


def test_the_gateway_admits_requests_that_an_account_signs_whole(
    service: Tiergate, fresh: Fresh, upstream: Script
) -> None:
    agent, signed = fresh("diamond"), FACTS["signed"]
    upstream.answers = [OK]
    chain = service.signing().domain.chain_id
    credential = by_message_signature(agent.id, agent.owner, chain)
    url = signed + "/a b?q=ü&%2f=1"
    with httpx.Client(auth=GatewayAuth(signed, credential)) as http:
        answers: list[Any] = [http.get(url), http.post(url, content="hello ü"), http.put(url, json={"a": 1})]
    with httpx2.Client(auth=GatewayAuth(signed, credential)) as http2:
        answers += [http2.get(url), http2.post(url, data={"a": "b c"}), http2.delete(url)]
    with requests.Session() as session:
        session.auth, session.trust_env = RequestsAuth(signed, credential), False
        answers += [session.get(url), session.post(url, data="hello ü"), session.put(url, json={"a": 1})]
    assert [answer.status_code for answer in answers] == [200] * 9
    assert {headers["x-agent-id"] for _, _, headers, _ in upstream.seen} == {str(agent.id)}
    assert upstream.seen[1][3] == "hello ü".encode()

    stranger = by_message_signature(agent.id, STRANGER, chain)
    answer = httpx.get(url, auth=GatewayAuth(signed, stranger))
    assert answer.status_code == 401 and 'error="principal_not_allowed"' in answer.headers["www-authenticate"]


def test_a_key_as_bearer_leaves_x_api_key_to_the_upstream(service: Tiergate, fresh: Fresh, upstream: Script) -> None:
    agent = fresh("diamond")
    key = service.keys.generate(agent.id, agent.owner).api_key
    upstream.answers = [OK]
    own = {"X-API-Key": "the upstream's"}
    httpx.get(GATEWAY, auth=GatewayAuth(GATEWAY, by_key(key, bearer=True)), headers=own)
    requests.get(GATEWAY, auth=RequestsAuth(GATEWAY, by_key(key, bearer=True)), headers=own)
    own = {"Authorization": "Bearer the upstream's"}
    httpx.get(GATEWAY, auth=GatewayAuth(GATEWAY, by_key(key)), headers=own)
    shown = [{headers.get("x-api-key"), headers.get("authorization")} for _, _, headers, _ in upstream.seen]
    assert shown == [{"the upstream's", None}] * 2 + [{"Bearer the upstream's", None}]


@pytest.mark.parametrize(("name", "bearer"), [("X-API-Key", False), ("Authorization", True)])
def test_a_header_of_the_request_is_not_overwritten_by_the_key(script: Script, name: str, bearer: bool) -> None:
    credential = by_key("svc_live_v1_" + "a" * 64, bearer=bearer)
    with pytest.raises(ValueError, match=f"{name} of its own.*bearer"):
        httpx.get(script.url, auth=GatewayAuth(script.url, credential), headers={name: "own"})
    with pytest.raises(ValueError, match=f"{name} of its own.*bearer"):
        requests.get(script.url, auth=RequestsAuth(script.url, credential), headers={name: "own"})
    assert script.seen == []


def test_the_gateways_refusals_are_typed(service: Tiergate, fresh: Fresh, upstream: Script) -> None:
    agent, other, unstaked = fresh("diamond"), fresh("diamond"), fresh("unstaked")
    issued = service.keys.generate(agent.id, agent.owner, declared_endpoint="https://app.example")
    auth = GatewayAuth(GATEWAY, by_key(issued.api_key))
    domain = service.signing().domain

    def narrow(owned: Owned) -> httpx.Response:
        auth = GatewayAuth(FACTS["narrow"], by_signature(owned.id, owned.owner, domain), retries=0)
        return httpx.get(FACTS["narrow"], auth=auth, timeout=60)

    upstream.answers = [OK]
    upstream.go.clear()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(narrow, agent)
        assert upstream.arrived.wait(30)
        with pytest.raises(errors.RateLimited):
            raise_for_error(narrow(agent))
        with pytest.raises(errors.Overloaded):
            raise_for_error(narrow(other))
        with pytest.raises(errors.UpstreamTimeout):
            raise_for_error(httpx.get(GATEWAY, auth=auth, timeout=60))
        upstream.go.set()
        raise_for_error(first.result())

    of_narrow = GatewayAuth(FACTS["narrow"], by_key(issued.api_key))
    of_unstaked = GatewayAuth(GATEWAY, by_signature(unstaked.id, unstaked.owner, domain))
    for error, answer in [
        (errors.InvalidApiKey, httpx.get(GATEWAY)),
        (errors.TierBlocked, httpx.get(GATEWAY, auth=of_unstaked)),
        (errors.Forbidden, httpx.get(GATEWAY + "/denied", auth=auth)),
        (errors.UpstreamError, httpx.get(GATEWAY + "/gone", auth=auth)),
        (errors.EndpointMismatch, httpx.get(FACTS["narrow"], auth=of_narrow, headers={"Origin": "https://other.example"})),
        (errors.LoopDetected, httpx.get(GATEWAY, auth=auth, headers={"Via": "1.1 edge"})),
        (errors.NotFound, httpx.get(GATEWAY, auth=auth, headers={"Host": "nobody.example"})),
        (errors.MethodNotAllowed, httpx.request("TRACE", GATEWAY)),
        (errors.ValidationError, httpx.get(GATEWAY, auth=auth, headers={"Origin": "no origin"})),
        (errors.RequestHeaderFieldsTooLarge, httpx.get(GATEWAY, headers={"X-Long": "a" * 40_000})),
    ]:
        with pytest.raises(error):
            raise_for_error(answer)


def test_the_upstreams_own_answers_pass(script: Script) -> None:
    ours = b'{"error":"","errorType":"FORBIDDEN","timestamp":1}'
    for status, body in [(500, b""), (500, b"<html>"), (500, b'{"error":"of the upstream"}'), (500, b"[]"), (200, ours)]:
        script.answers = [(status, {}, body)]
        raise_for_error(httpx.get(script.url))


def credentials() -> list[Credential]:
    domain = Domain(name="n", version="1", chain_id=1, verifying_contract="0x" + "0" * 40)
    key = "svc_live_v1_" + "a" * 64
    return [
        by_key(key),
        by_signature(4, Account.create(), domain),
        by_key(key, bearer=True),
        by_message_signature(4, Account.create(), 1),
    ]


KINDS = ["key", "signature", "bearer", "message"]
OUTGOING = Outgoing("POST", "http", "gateway.example", "/", {}, b"body")


def shown(headers: dict[str, str]) -> set[str]:
    keys = {name for name in ("x-api-key", "authorization") if "svc_live" in headers.get(name, "")}
    of_message = {"signature", "signature-input", "content-digest"} & headers.keys()
    return keys | of_message | {name for name in headers if name.startswith("x-agent-")}


def by_httpx(gateway: str, url: str, credential: Credential) -> int:
    with httpx.Client(auth=GatewayAuth(gateway, credential), follow_redirects=True) as http:
        return http.post(url, content=b"body").status_code


def by_httpx2(gateway: str, url: str, credential: Credential) -> int:
    with httpx2.Client(auth=GatewayAuth(gateway, credential), follow_redirects=True) as http:
        return http.post(url, content=b"body").status_code


def by_async_httpx2(gateway: str, url: str, credential: Credential) -> int:
    async def run() -> int:
        async with httpx2.AsyncClient(auth=GatewayAuth(gateway, credential), follow_redirects=True) as http:
            return (await http.post(url, content=b"body")).status_code

    return asyncio.run(run())


def by_async_httpx(gateway: str, url: str, credential: Credential) -> int:
    async def run() -> int:
        async with httpx.AsyncClient(auth=GatewayAuth(gateway, credential), follow_redirects=True) as http:
            return (await http.post(url, content=b"body")).status_code

    return asyncio.run(run())


def by_next_request(gateway: str, url: str, credential: Credential) -> int:
    with httpx.Client() as http:
        response = http.post(url, content=b"body", auth=GatewayAuth(gateway, credential))
        assert response.next_request is not None
        return http.send(response.next_request).status_code


def by_requests(gateway: str, url: str, credential: Credential) -> int:
    with requests.Session() as session:
        session.trust_env = False
        session.auth = RequestsAuth(gateway, credential)
        return session.post(url, data=b"body").status_code


def by_async_aiohttp(gateway: str, url: str, credential: Credential) -> int:
    async def run() -> int:
        async with aiohttp.ClientSession(middlewares=[AiohttpAuth(gateway, credential)]) as session:
            async with session.post(url, data=b"body", skip_auto_headers=["Content-Type"]) as response:
                return response.status

    return asyncio.run(run())


#: They send a redirect within the gateway without the credential first, and again with it. Only aiohttp has a place for it at once.
BARE_AFTER_REDIRECTS = [by_httpx, by_async_httpx, by_httpx2, by_async_httpx2, by_requests]
SENDERS = [*BARE_AFTER_REDIRECTS, by_async_aiohttp]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("credential", credentials(), ids=KINDS)
@pytest.mark.parametrize("send", [*SENDERS, by_next_request])
def test_no_redirect_takes_a_credential_to_another_origin(
    script: Script, elsewhere: Script, send: Callable[[str, str, Credential], int], credential: Credential, status: int
) -> None:
    script.answers = [(status, {"Location": elsewhere.url + "/b"}, b"")]
    elsewhere.answers = [(401, {}, b"")]
    assert send(script.url, script.url + "/a", credential) == 401
    assert shown(script.seen[0][2]) == {name.lower() for name in credential.headers(OUTGOING, None)}
    assert [shown(headers) for _, _, headers, _ in elsewhere.seen] == [set()]


@pytest.mark.parametrize("credential", credentials(), ids=KINDS)
@pytest.mark.parametrize("send", BARE_AFTER_REDIRECTS)
def test_a_redirect_within_the_gateway_gets_a_credential_of_its_own(
    script: Script, send: Callable[[str, str, Credential], int], credential: Credential
) -> None:
    script.answers = [(307, {"Location": "/b"}, b""), (401, {}, b""), (200, {}, b"")]
    assert send(script.url, script.url + "/a", credential) == 200
    assert [path for _, path, _, _ in script.seen] == ["/a", "/b", "/b"]
    assert shown(script.seen[1][2]) == set() != shown(script.seen[2][2])
    assert [body for *_, body in script.seen] == [b"body"] * 3
    signed = ("x-agent-nonce", "signature")
    nonces = [[headers.get(name, index) for name in signed] for index, (_, _, headers, _) in enumerate(script.seen)]
    assert len({*map(tuple, nonces)}) == 3


@pytest.mark.parametrize("send", BARE_AFTER_REDIRECTS)
def test_no_redirect_after_such_a_redirect_takes_it_elsewhere(
    script: Script, elsewhere: Script, send: Callable[[str, str, Credential], int]
) -> None:
    script.answers = [(307, {"Location": "/b"}, b""), (401, {}, b""), (307, {"Location": elsewhere.url}, b"")]
    elsewhere.answers = [OK]
    assert send(script.url, script.url + "/a", credentials()[0]) == 200
    assert [len(shown(headers)) for _, _, headers, _ in [*script.seen, *elsewhere.seen]] == [1, 0, 1, 0]


@pytest.mark.parametrize("send", SENDERS)
def test_a_refused_credential_is_not_shown_again(script: Script, send: Callable[[str, str, Credential], int]) -> None:
    script.answers = [(401, {}, b"")]
    assert send(script.url, script.url + "/a", credentials()[0]) == 401
    assert len(script.seen) == 1


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("send", SENDERS)
def test_another_origin_cannot_spend_the_credential_at_the_gateway(
    script: Script, elsewhere: Script, send: Callable[[str, str, Credential], int], status: int
) -> None:
    elsewhere.answers = [(status, {"Location": script.url + "/transfer"}, b"")]
    script.answers = [(401, {}, b"")]
    assert send(script.url, elsewhere.url + "/a", credentials()[0]) == 401
    assert [shown(headers) for _, _, headers, _ in [*elsewhere.seen, *script.seen]] == [set()] * 2

    # Also not by a redirect of the gateway's to there.
    script.seen.clear()
    script.answers = [(status, {"Location": elsewhere.url}, b""), (401, {}, b"")]
    assert send(script.url, script.url + "/a", credentials()[0]) == 401
    assert [len(shown(headers)) for _, _, headers, _ in script.seen] == [1, 0]
    assert shown(elsewhere.seen[1][2]) == set()


def test_files_are_sent_again_whole_by_requests_and_streams_are_not_sent_again(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "upload"
    file.write_bytes(b"before body")
    answers = [(307, {"Location": "/b"}, b""), (401, {}, b""), OK]
    script.answers = [*answers]
    with requests.Session() as session, file.open("rb") as body:
        session.trust_env, session.auth = False, RequestsAuth(script.url, credentials()[0])
        body.seek(7)
        assert session.post(script.url + "/a", data=body, timeout=60).status_code == 200
        assert [body for *_, body in script.seen] == [b"body"] * 3

        script.seen.clear()
        script.answers = [*answers]
        assert session.post(script.url + "/a", data=iter([b"body"]), timeout=60).status_code == 401
        assert len(script.seen) == 2


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "a\r\nX-Other: b", "ä", "\x7f", "\udc80"])
def test_a_key_that_no_header_can_have_is_refused_without_being_quoted(key: str) -> None:
    for text in {key, key + "secret", "secret" + key} - {"secret"}:
        with pytest.raises(ValueError, match="key") as refused:
            by_key(text)
        assert "secret" not in repr(refused.value) and refused.value.__context__ is None


def test_blanks_around_a_key_or_a_signature_are_not_sent(script: Script) -> None:
    script.answers = [OK]
    domain = Domain(name="n", version="1", chain_id=1, verifying_contract="0x" + "0" * 40)
    for credential in (by_key(" key\n"), by_signature(4, lambda _: "0x11\n", domain)):
        httpx.get(script.url, auth=GatewayAuth(script.url, credential)).raise_for_status()
        with requests.Session() as session:
            session.trust_env, session.auth = False, RequestsAuth(script.url, credential)
            session.get(script.url).raise_for_status()
    assert [headers.get("x-api-key") for _, _, headers, _ in script.seen] == ["key", "key", None, None]
    assert [headers.get("x-agent-signature") for _, _, headers, _ in script.seen] == [None, None, "0x11", "0x11"]


def test_a_signature_that_no_header_can_have_is_refused_without_being_quoted() -> None:
    domain = Domain(name="n", version="1", chain_id=1, verifying_contract="0x" + "0" * 40)
    with pytest.raises(ValueError, match="signature") as refused:
        by_signature(4, lambda _: "0xsecret\nX-Other: 1", domain).headers(OUTGOING, None)
    assert "secret" not in repr(refused.value) and refused.value.__context__ is None


def test_the_credential_is_in_no_header_that_hooks_and_logs_read(script: Script) -> None:
    script.answers = [OK]
    read: list[object] = []

    def hook(request: httpx.Request) -> None:
        read.extend([dict(request.headers), request.headers, request.headers.get("X-API-Key")])

    with httpx.Client(event_hooks={"request": [hook]}) as http:
        sent = http.get(script.url, auth=GatewayAuth(script.url, credentials()[0])).request
    assert len(read) == 3 and "svc_live" not in repr(read)
    assert b"X-API-Key" in dict(sent.headers.raw) and "x-api-key" in shown(script.seen[0][2])


def test_another_origin_gets_no_credential_at_all(script: Script, elsewhere: Script) -> None:
    elsewhere.answers = [(200, {}, b"")]
    httpx.get(elsewhere.url, auth=GatewayAuth(script.url, credentials()[0]))
    requests.get(elsewhere.url, auth=RequestsAuth(script.url, credentials()[0]))
    requests.get(elsewhere.url, auth=RequestsAuth(elsewhere.url.replace("http:", "https:"), credentials()[0]))
    assert [shown(headers) for _, _, headers, _ in elsewhere.seen] == [set()] * 3


def test_the_agent_is_read_only_from_complete_headers() -> None:
    agent = Agent(agent_id=7, owner="0x" + "aA" * 20, trust_tier=2, staked_amount=10_000, endpoint_mismatch=False)
    assert agent_of(SEEN) == agent == agent_of({name.title(): value for name, value in SEEN.items()})
    assert agent_of({}) is None
    for name in SEEN:
        assert agent_of({other: value for other, value in SEEN.items() if other != name}) is None
        assert agent_of(SEEN | {name: SEEN[name] + ", " + SEEN[name]}) is None
        assert agent_of(httpx.Headers([*SEEN.items(), (name, SEEN[name])])) is None
        assert agent_of(SEEN | {name.upper(): SEEN[name]}) is None
    for name, wrong in [("x-agent-tier", "0"), ("x-agent-tier", "5"), ("x-agent-id", "-7"), ("x-agent-id", "7\n")]:
        assert agent_of(SEEN | {name: wrong}) is None


def test_the_source_of_the_tier_is_told_beside_the_stake_or_instead_of_it() -> None:
    source = {"x-agent-tier-source": "erc20"}
    others = {name: value for name, value in SEEN.items() if name != "x-agent-staked-amount"}
    agents = [agent_of(others | source), agent_of(SEEN | source)]
    assert [(agent.staked_amount, agent.tier_source) for agent in agents if agent] == [(None, "erc20"), (10_000, "erc20")]
    for wrong in ("", "erc20, list", "Erc20", "a" * 33):
        assert agent_of(SEEN | {"x-agent-tier-source": wrong}) is None
    assert agent_of(others | source | {"x-agent-staked-amount": ""}) is None


def server() -> FastAPI:
    app = FastAPI()

    @app.get("/me")
    def me(agent: Annotated[Agent, Depends(require_agent())]) -> int:
        return agent.agent_id

    @app.get("/gold")
    def gold(agent: Annotated[Agent, Depends(require_agent(min_tier=3))]) -> int:
        return agent.trust_tier

    @app.websocket("/live")
    async def live(websocket: WebSocket, agent: Annotated[Agent, Depends(require_agent())]) -> None:
        await websocket.accept()
        await websocket.close()

    return app


def ask(app: FastAPI, path: str, headers: dict[str, str]) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as http:
            return await http.get(path, headers=headers)

    return asyncio.run(run())


def test_the_dependency_of_fastapi_gives_the_agent_or_refuses_in_the_contracts_form() -> None:
    app = server()
    app.add_exception_handler(AgentRefused, agent_refused)
    assert ask(app, "/me", SEEN).json() == 7
    assert ask(app, "/gold", SEEN | {"x-agent-tier": "3"}).json() == 3

    # Its key is not what is wrong.
    with pytest.raises(errors.Forbidden):
        raise_for_error(ask(app, "/me", {}))
    with pytest.raises(errors.TierBlocked) as refused:
        raise_for_error(ask(app, "/gold", SEEN))
    assert refused.value.details == {"agentId": "7", "currentTier": 2, "requiredTier": 3}


def test_the_dependency_refuses_without_the_handler_too() -> None:
    assert ask(server(), "/me", {}).status_code == 403
    assert ask(server(), "/gold", SEEN).status_code == 403


def test_the_dependency_guards_websockets_too() -> None:
    app = server()
    app.add_exception_handler(AgentRefused, agent_refused)

    async def accepted(headers: dict[str, str]) -> bool:
        sent: list[str] = []

        async def receive() -> dict[str, str]:
            return {"type": "websocket.connect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message["type"])

        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "websocket", "path": "/live", "headers": raw, "query_string": b"", "subprotocols": []}
        await app(scope, receive, send)
        return "websocket.accept" in sent

    assert asyncio.run(accepted(SEEN)) and not asyncio.run(accepted({}))
