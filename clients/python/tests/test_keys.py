"""Where an agent's key comes from, and when it is asked for again."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from conftest import GATEWAY, Owned, Script
from test_gateway import SENDERS

from tiergate import GatewayAuth, Tiergate, by_key
from tiergate.gateway import Credential, KeySource
from tiergate.requests import GatewayAuth as RequestsAuth

Send = Callable[[str, str, Credential], int]
ADAPTERS = pytest.mark.parametrize("send", SENDERS)
OK: tuple[int, dict[str, str], bytes] = (200, {}, b"")
BODY = json.dumps({"error": "for people", "errorType": "INVALID_API_KEY", "details": {"agentId": None}, "timestamp": 1})
REFUSED: tuple[int, dict[str, str], bytes] = (401, {"Content-Type": "application/json"}, BODY.encode())


def shown(script: Script) -> list[str | None]:
    return [headers.get("x-api-key") for _, _, headers, _ in script.seen]


def source(kind: str, folder: Path) -> tuple[KeySource, Callable[[str], object]]:
    """A source of a key, and how its key is replaced."""
    keys = ["one"]
    if kind == "file":
        path = folder / "api.key"
        path.touch(0o600)
        path.write_text("one\n")
        return path, path.write_text
    if kind == "callable":
        return lambda: keys[-1], keys.append

    async def ask() -> str:
        return keys[-1]

    return ask, keys.append


@ADAPTERS
@pytest.mark.parametrize("kind", ["file", "callable", "coroutine function"])
def test_a_key_that_was_rotated_is_asked_for_once_more_and_the_request_is_repeated(
    script: Script, send: Send, kind: str, tmp_path: Path
) -> None:
    key, replace = source(kind, tmp_path)
    credential = by_key(key)
    if kind == "coroutine function" and "async" not in send.__name__:
        with pytest.raises(ValueError, match="asynchronous client"):
            send(script.url, script.url + "/a", credential)
        return
    script.answers = [OK]
    assert send(script.url, script.url + "/a", credential) == 200
    script.answers = [REFUSED, OK]
    replace("two")
    assert send(script.url, script.url + "/a", credential) == 200
    assert send(script.url, script.url + "/a", credential) == 200
    assert shown(script) == ["one", "one", "two", "two"]


@ADAPTERS
def test_a_key_that_is_the_same_is_no_reason_to_repeat_and_one_that_changes_is_one_once(script: Script, send: Send) -> None:
    script.answers = [REFUSED]
    asked = itertools.count(1)
    assert send(script.url, script.url + "/a", by_key("one")) == 401
    assert send(script.url, script.url + "/a", by_key(lambda: "one")) == 401
    assert send(script.url, script.url + "/a", by_key(lambda: f"key{next(asked)}")) == 401
    assert shown(script) == ["one", "one", "key1", "key2"]


@ADAPTERS
def test_an_api_s_own_401_is_no_matter_of_the_key(script: Script, send: Send) -> None:
    status, headers, body = REFUSED
    script.answers = [(status, headers | {"X-RateLimit-Limit": "16"}, body)]
    asked = itertools.count(1)
    assert send(script.url, script.url + "/a", by_key(lambda: f"key{next(asked)}")) == 401
    assert shown(script) == ["key1"]


def test_a_key_is_asked_for_again_after_a_stream_was_refused_which_is_not_repeated(script: Script) -> None:
    keys = ["one", "two"]
    for auth in (GatewayAuth(script.url, by_key(lambda: keys.pop(0))), RequestsAuth(script.url, by_key(lambda: keys.pop(0)))):
        script.answers, keys[:] = [REFUSED, OK], ["one", "two"]
        if isinstance(auth, GatewayAuth):
            with httpx.Client(auth=auth) as client:
                assert client.post(script.url, content=iter([b"x"])).status_code == 401
                assert client.get(script.url).status_code == 200
        else:
            assert requests.post(script.url, data=iter([b"x"]), auth=auth, timeout=60).status_code == 401
            assert requests.get(script.url, auth=auth, timeout=60).status_code == 200
    assert shown(script) == ["one", "two"] * 2


def test_a_rotation_is_followed_at_the_real_gateway(
    service: Tiergate, fresh: Callable[[str], Owned], upstream: Script
) -> None:
    agent = fresh("diamond")
    upstream.answers = [OK]
    keys = [service.keys.generate(agent.id, agent.owner).api_key]
    with httpx.Client(auth=GatewayAuth(GATEWAY, by_key(lambda: keys[-1]))) as client:
        assert client.get(GATEWAY).status_code == 200
        keys.append(service.keys.rotate(agent.id, agent.owner).api_key)
        assert client.get(GATEWAY).status_code == 200


def test_a_key_that_can_t_be_had_fails_the_request_and_is_asked_for_anew_by_the_next_one(script: Script) -> None:
    script.answers = [OK]
    answers: list[Any] = [RuntimeError("sealed"), 5, "", "one"]

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    with httpx.Client(auth=GatewayAuth(script.url, by_key(ask))) as client:
        for error, match in ((RuntimeError, "sealed"), (ValueError, "is no text"), (ValueError, "characters")):
            with pytest.raises(error, match=match):
                client.get(script.url)
        assert client.get(script.url).status_code == 200


def test_a_key_s_file_that_others_can_use_is_warned_about_and_one_that_is_not_there_is_not_named(
    script: Script, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script.answers = [OK]
    file = tmp_path / "api.key"
    file.write_text("one\n")
    for mode, warnings in ((0o600, 0), (0o640, 1), (0o604, 1)):
        file.chmod(mode)
        caplog.clear()
        with httpx.Client(auth=GatewayAuth(script.url, by_key(file))) as client:
            assert client.get(script.url).status_code == 200
        told = [record for record in caplog.records if record.name == "tiergate"]
        assert [record.levelno for record in told] == [logging.WARNING] * warnings, oct(mode)
    for name in (tmp_path / "svc_live", tmp_path / "svc_live\0"):
        with httpx.Client(auth=GatewayAuth(script.url, by_key(name))) as client:
            with pytest.raises(ValueError, match="can't be read") as refused:
                client.get(script.url)
        assert "svc_live" not in str(refused.value)


def test_requests_that_are_refused_at_once_ask_for_a_key_without_an_error(script: Script) -> None:
    keys = ["one"]

    async def all_at_once() -> list[int]:
        async with httpx.AsyncClient(auth=GatewayAuth(script.url, by_key(lambda: keys[-1]))) as client:
            await client.get(script.url)
            keys.append("two")
            script.answers = [*[REFUSED] * 4, OK]
            return [each.status_code for each in await asyncio.gather(*(client.get(script.url) for _ in range(4)))]

    script.answers = [OK]
    assert asyncio.run(all_at_once()) == [200] * 4


@pytest.mark.parametrize("is_awaited_later", [False, True])
def test_requests_that_begin_at_once_share_one_ask_and_its_failure(script: Script, is_awaited_later: bool) -> None:
    asked = itertools.count()

    async def ask() -> str:
        await asyncio.sleep(0)
        if next(asked) == 0:
            raise RuntimeError("sealed")
        return "one"

    async def all_at_once() -> list[Any]:
        key = by_key((lambda: ask()) if is_awaited_later else ask)
        async with httpx.AsyncClient(auth=GatewayAuth(script.url, key)) as client:
            asks = [[client.get(script.url) for _ in range(8)] for _ in range(2)]
            return [await asyncio.gather(*each, return_exceptions=True) for each in asks]

    script.answers = [OK]
    failures, answers = asyncio.run(all_at_once())
    assert [str(failure) for failure in failures] == ["sealed"] * 8
    assert [answer.status_code for answer in answers] == [200] * 8
    assert next(asked) == 2


@ADAPTERS
def test_a_source_that_fails_once_the_key_is_refused_leaves_the_gateway_s_answer(
    script: Script, send: Send, caplog: pytest.LogCaptureFixture
) -> None:
    script.answers = [REFUSED]
    answers = ["one"]
    assert send(script.url, script.url + "/a", by_key(answers.pop)) == 401
    assert "can't be read again: IndexError" in caplog.text
