"""A key that one process of a fleet replaces before it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import API, FACTS, GATEWAY, Owned, Script
from test_gateway import SENDERS

from tiergate import HeldKey, KeptKey, Tiergate, by_key, errors

FLEET = Path(__file__).parent / "fleet.py"
CLIENTS = Path(__file__).parents[2]
VIEM = CLIENTS.parent / "tools/node_modules/viem/_esm/accounts/index.js"
NODE = f"""
import {{ once }} from "node:events";
import {{ agentFetch, Tiergate }} from "{CLIENTS}/typescript/dist/index.js";
import {{ keptKey }} from "{CLIENTS}/typescript/dist/kept.js";
import {{ privateKeyToAccount }} from "{VIEM}";

const [file, agentId, first, api, gateway, owner] = process.argv.slice(1);
const terms = {{ service: new Tiergate(api), agentId, signer: privateKeyToAccount(owner), expiresIn: 3_600, name: "fleet" }};
const apiKey = keptKey(file, terms);
const ask = agentFetch(gateway, {{ apiKey }});
console.log("ready");
await once(process.stdin, "data");
process.stdin.destroy();
let [refused, after] = [0, 0];
const seen = new Set();
while (after < 5) {{
  const response = await ask("/gone");
  await response.body?.cancel();
  refused += response.status === 401;
  seen.add(await apiKey.current());
  after += (await apiKey.current()) !== first;
}}
console.log(JSON.stringify({{ refused, seen: [...seen] }}));
"""


def keep(file: Path, key: str, left: int) -> None:
    """Writes a key with this much of an hour's life left."""
    beside = file.with_name("beside")
    beside.touch(0o600)
    beside.write_text(json.dumps({"apiKey": key, "endsAt": int(time.time()) + left, "expiresIn": 3_600}))
    beside.replace(file)


def issues(script: Script, *answers: str | None) -> None:
    """Has a service answer: `None` refuses."""
    script.answers = []
    for key in answers:
        issued = {"apiKey": key, "agentId": "4", "message": ""}
        refusal = {"error": "x", "errorType": "INTERNAL_ERROR", "details": {}, "timestamp": 1}
        script.answers.append((201, {}, json.dumps(issued).encode()) if key else (500, {}, json.dumps(refusal).encode()))


def changes(script: Script) -> list[tuple[str, dict[str, Any]]]:
    return [(path, json.loads(body)) for method, path, _, body in script.seen if method == "POST"]


@pytest.fixture
def kept(script: Script, fresh: Callable[[str], Owned], tmp_path: Path) -> Iterator[Callable[[], KeptKey]]:
    owner = fresh("unstaked").owner
    script.answers = [(200, {}, httpx.get(API + "/.well-known/tiergate").content)]
    with Tiergate(script.url, retries=0) as service:
        service.signing()
        yield lambda: KeptKey(tmp_path / "agent.json", service, 4, owner, expires_in=3_600)


def test_a_key_is_replaced_once_by_processes_of_both_languages_none_of_which_is_refused(
    service: Tiergate, fresh: Callable[[str], Owned], tmp_path: Path
) -> None:
    agent, file = fresh("diamond"), tmp_path / "agent.json"
    first = service.keys.generate(agent.id, agent.owner, name="fleet", expires_in=3_600).api_key
    keep(file, first, 300)
    given = [str(file), str(agent.id), first, API, GATEWAY, FACTS["owner"]]
    size = 50 if "TG_WHOLE" in os.environ else 4
    programs = [[sys.executable, "-B", str(FLEET)]] * size
    if shutil.which("node") and VIEM.exists():
        programs[: size // 4] = [["node", "--input-type=module", "--eval", NODE, "--"]] * (size // 4)
    environment = os.environ | {"PYTHONPATH": str(CLIENTS / "python")}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    fleet = [subprocess.Popen([*program, *given], **pipes, env=environment) for program in programs]
    for each in fleet:
        assert each.stdout is not None and each.stdout.readline() == "ready\n"
    for each in fleet:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in fleet:
        told = json.loads(each.communicate(timeout=200)[0])
        assert told["refused"] == 0
        assert set(told["seen"]) - {first} == {json.loads(file.read_text())["apiKey"]}
    keys = service.profile(agent.id, agent.owner).keys
    assert [(key.name, key.replaced) for key in keys] == [("fleet", True), ("fleet", False)]
    assert [each.name for each in tmp_path.iterdir()] == ["agent.json"]


def test_a_key_is_made_where_there_is_no_file_in_one_that_its_user_alone_can_read(
    script: Script, kept: Callable[[], KeptKey], tmp_path: Path
) -> None:
    issues(script, "svc_live_v1_1")
    assert [kept().current(), kept().current()] == ["svc_live_v1_1"] * 2
    [(path, body)] = changes(script)
    assert (path, body["expiresIn"]) == ("/keys/generate", 3_600)
    assert (tmp_path / "agent.json").stat().st_mode & 0o777 == 0o600


def test_a_key_is_followed_in_its_file_and_one_that_was_alone_there_is_replaced(
    script: Script, kept: Callable[[], KeptKey], tmp_path: Path
) -> None:
    issues(script, "svc_live_v1_1")
    file, key = tmp_path / "agent.json", kept()
    file.touch(0o600)
    file.write_text("svc_live_v1_alone\n")
    # The refused key waits for the try.
    assert key.current("svc_live_v1_alone") == "svc_live_v1_1"
    [(path, body)] = changes(script)
    assert (path, body["graceSeconds"]) == ("/keys/rotate", 600)
    keep(file, "svc_live_v1_other", 3_000)
    assert [key.current(), key.current("svc_live_v1_other")] == ["svc_live_v1_other"] * 2
    script.answers = [(200, {}, b"")]
    credential, names = by_key(key), []
    for send in SENDERS:
        names.append(f"svc_live_v1_{send.__name__}")
        keep(file, names[-1], 3_000)
        assert send(script.url, script.url + "/a", credential) == 200
    assert [headers.get("x-api-key") for _, _, headers, _ in script.seen[-len(names) :]] == names


def test_a_key_stays_in_use_where_it_can_t_be_replaced_which_is_tried_again_after_a_minute_by_one_process_alone(
    script: Script, kept: Callable[[], KeptKey], tmp_path: Path
) -> None:
    issues(script, None)
    file, lock = tmp_path / "agent.json", tmp_path / "agent.json.lock-1"
    keep(file, "old", 300)
    one, other = kept(), kept()
    # A refused one is waited for, so that the try has ended.
    assert [each.current("old") for each in (one, other, one, other)] == ["old"] * 4
    assert len(changes(script)) == 1
    os.utime(lock, (time.time() - 61,) * 2)
    issues(script, "svc_live_v1_1")
    assert [one.current("old"), other.current("old")] == ["svc_live_v1_1"] * 2
    assert len(changes(script)) == 2 and not lock.exists()


def test_a_key_that_has_ended_and_can_t_be_replaced_fails_its_requests_without_a_further_try(
    script: Script, kept: Callable[[], KeptKey], tmp_path: Path
) -> None:
    issues(script, None)
    keep(tmp_path / "agent.json", "old", -1)
    key = kept()
    with pytest.raises(errors.InternalError):
        key.current()
    with pytest.raises(errors.Unreachable, match="a try has failed within the last minute"):
        key.current()
    assert len(changes(script)) == 1


def test_a_kept_key_names_a_wrong_argument_and_shows_nothing_of_a_file_that_holds_no_key(
    service: Tiergate, fresh: Callable[[str], Owned], tmp_path: Path
) -> None:
    owner, file = fresh("unstaked").owner, tmp_path / "agent.json"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"expires_in": 60}, "expires_in"),
        ({"grace_seconds": 0}, "grace_seconds"),
        ({"tenants": "acme"}, "tenants"),
        ({"name": 5}, "name"),
    ]
    for each, match in wrong:
        with pytest.raises(ValueError, match=match):
            KeptKey(file, service, 4, owner, **{"expires_in": 3_600, **each})
    keep(file, "svc_live_v1_x", 0)
    file.write_text(file.read_text()[:-3])
    with pytest.raises(ValueError) as refused:
        KeptKey(file, service, 4, owner, expires_in=3_600).current()
    assert str(refused.value) == "the key's file holds no key"


def test_a_key_has_a_name_tenants_an_end_and_a_grace_which_the_profile_tells(
    service: Tiergate, fresh: Callable[[str], Owned]
) -> None:
    agent = fresh("diamond")
    first = service.keys.generate(agent.id, agent.owner, name="ci", tenants=["wide"], expires_in=600)
    assert (first.name, first.tenants, first.expires_at is not None) == ("ci", ("wide",), True)
    second = service.keys.rotate(agent.id, agent.owner, name="ci", grace_seconds=60)
    profile = service.profile(agent.id, agent.owner)
    replaced, current = profile.keys
    days = {"made_on": current.made_on, "last_used_on": None}
    assert current == HeldKey(name="ci", expires_at=None, tenants=None, replaced=False, **days)
    assert current.made_on is not None
    assert (replaced.name, replaced.tenants, replaced.replaced) == ("ci", ("wide",), True)
    assert replaced.expires_at is not None and 0 < replaced.expires_at - profile.timestamp <= 60
    assert service.verify(second.api_key).agent_id == agent.id
    with pytest.raises(errors.InvalidApiKey):  # It is for a tenant.
        service.verify(first.api_key)
    with pytest.raises(errors.ValidationError):
        service.keys.revoke(agent.id, agent.owner, name="other")
    assert service.keys.status(agent.id).has_key
    assert service.keys.revoke(agent.id, agent.owner, name="ci").success
    assert not service.keys.status(agent.id).has_key
    for wrong in ({"expires_in": "1"}, {"tenants": "wide"}, {"name": 5}):
        with pytest.raises(ValueError):
            service.keys.generate(agent.id, agent.owner, **wrong)
