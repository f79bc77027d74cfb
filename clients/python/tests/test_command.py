"""`python -m tiergate`, which `uvx tiergate` runs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import API, FACTS, ROOT, Owned, Script

from tiergate import Tiergate
from tiergate.__main__ import main


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command in a folder of its own: in this process, or in one whose standard output is the file `out`."""

    def run(*arguments: str, given: str = "", out: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        variables = {"TIERGATE_URL": API} | more
        if out is not None:
            command = [sys.executable, "-B", "-m", "tiergate", *arguments]
            variables |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "NO_PROXY": "*"}
            with Path(out).open("wb") as stdout:
                return subprocess.run(
                    command, cwd=tmp_path, env=variables, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60
                )
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr("sys.argv", ["tiergate", *arguments])
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(arguments, ended.value.code, *capsys.readouterr())

    return run


def test_an_owner_makes_replaces_and_revokes_a_key_with_a_key_file_a_keystore_or_elsewhere(
    run: Callable[..., subprocess.CompletedProcess[str]],
    fresh: Callable[[str], Owned],
    service: Tiergate,
    tmp_path: Path,
) -> None:
    agent = fresh("unstaked")
    key_file = tmp_path / "owner.key"
    key_file.write_text(FACTS["owner"])
    key_file.chmod(0o600)
    signed = ("--agent-id", str(agent.id), "--owner-key-file", "owner.key")
    made = run("keys", "generate", *signed, "--out", "api.key", "--name", "ci", "--expires-in", "3600")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == f"agentId  {agent.id}\nfile     api.key\n"
    api_key = tmp_path / "api.key"
    assert api_key.stat().st_mode & 0o777 == 0o600
    first = api_key.read_text()
    assert service.keys.status(agent.id).has_key

    again = run("keys", "generate", *signed, "-o", "json")
    assert again.returncode == 1
    assert json.loads(again.stdout)["errorType"] == "KEY_ALREADY_EXISTS"
    assert "api.key: it exists" in run("keys", "generate", *signed, "--out", "api.key").stderr

    rotate = ("keys", "rotate", "--agent-id", str(agent.id), "--owner-key-file", "-", "--out", "api.key")
    terms = ("--grace-seconds", "60", "--tenants", "acme,other")
    replaced = run(*rotate, *terms, given=FACTS["owner"])
    assert (replaced.returncode, replaced.stderr) == (0, "")
    assert api_key.read_text() != first
    old, new = service.profile(agent.id, agent.owner).keys
    assert (old.name, old.replaced, new.name, new.tenants) == ("ci", True, "ci", ("acme", "other"))
    assert old.expires_at is not None
    assert (new.expires_at, new.made_on is not None) == (None, True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["api.key", "owner.key"]

    printed = run("keys", "revoke", "--agent-id", str(agent.id), "--typed-data").stdout
    (tmp_path / "request.json").write_text(printed)
    signature = agent.owner.sign_typed_data(full_message=json.loads(printed)).signature.hex()
    second = ("keys", "revoke", "--signed", "request.json", "--signature", "-")
    assert "--agent-id is 1, but" in run(*second, "--agent-id", "1", given=f"0x{signature}").stderr
    revoked = run(*second, given=f"0x{signature.removeprefix('0x')}\n")
    assert (revoked.returncode, revoked.stdout) == (0, f"agentId  {agent.id}\nsuccess  true\n")
    status = run("keys", "status", "--agent-id", str(agent.id), "-o", "json")
    assert json.loads(status.stdout) == {"agentId": str(agent.id), "hasKey": False}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("revoke", "--agent-id", "4", "--owner-key-file", "wide.key"), 1, "warning: others may read wide.key"),
        (("revoke", "--agent-id", "4", "--owner-key-file", "none"), 1, "none: can't be read: No such file"),
        (("revoke", "--agent-id", "4", "--owner-key-file", "keystore"), 1, "TIERGATE_KEYSTORE_PASSWORD"),
        (("status", "--agent-id", "4"), 1, "NO_ANSWER"),
        (("status", "--agent-id", "4", "--url", "localhost:8080"), 2, "such as https://keys.example"),
        (("status", "--agent-id", "4", "--url", "http://keys.invalid"), 2, "--allow-http keys.invalid"),
        (("status",), 2, "--agent-id"),
        (("surprise",), 2, "invalid choice"),
        (("rotate", "--agent-id", "4", "--expires-in", "1d"), 2, "not a number in digits"),
        (("generate", "--agent-id", "4", "--grace-seconds", "1"), 2, "unrecognized arguments"),
    ],
)
def test_what_goes_wrong_is_a_sentence_an_exit_code_and_no_word_of_a_key(
    run: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    (tmp_path / "wide.key").write_text(FACTS["owner"])
    (tmp_path / "wide.key").chmod(0o644)
    (tmp_path / "keystore").write_text("{}")
    nowhere = () if "--url" in arguments or arguments == ("surprise",) else ("--url", "http://127.0.0.1:1")
    ran = run("keys", *arguments, *nowhere)
    assert ran.returncode == code, ran.stderr
    assert words in ran.stderr
    assert FACTS["owner"].removeprefix("0x") not in ran.stdout + ran.stderr


SIGNING = {
    "domain": {"name": "A", "version": "1", "chainId": 1, "verifyingContract": "0x" + "1" * 40},
    **{"types": {}, "primaryType": "Verification", "timestampMaxAge": 300, "timestampMaxAhead": 30},
    **{"tiers": [], "tokenDecimals": 18, "contractSignatures": False},
}
ISSUED = {"agentId": "4", "apiKey": "svc_live_v1_x", "message": "made"}


def _refusal(error_type: str) -> dict[str, object]:
    return {"error": "no", "errorType": error_type, "details": {"a": 1}, "timestamp": 1}


@pytest.mark.parametrize(
    ("signing", "status", "body", "out", "code", "kind"),
    [
        (200, 200, ISSUED, "/dev/full", 3, None),
        (200, 200, ISSUED, None, 0, None),
        (200, 504, _refusal("UPSTREAM_TIMEOUT"), None, 3, "UPSTREAM_TIMEOUT"),
        (200, 502, "<html>", None, 3, "UNEXPECTED_ANSWER"),
        (200, 503, _refusal("RPC_ERROR"), None, 1, "RPC_ERROR"),
        (200, 403, _refusal("TIER_BLOCKED"), None, 1, "TIER_BLOCKED"),
        (500, 200, ISSUED, None, 1, "INTERNAL_ERROR"),
    ],
)
def test_a_key_that_may_be_changed_and_is_not_shown_gives_exit_code_3(
    run: Callable[..., subprocess.CompletedProcess[str]],
    script: Script,
    signing: int,
    status: int,
    body: object,
    out: str | None,
    code: int,
    kind: str | None,
) -> None:
    first = SIGNING if signing == 200 else _refusal("INTERNAL_ERROR")
    headers = {"Content-Type": "application/json", "Retry-After": "900"}
    script.answers = [(signing, headers, json.dumps(first).encode()), (status, headers, json.dumps(body).encode())]
    arguments = ("keys", "rotate", "--agent-id", "4", "-o", "json")
    ran = run(*arguments, out=out, TIERGATE_URL=script.url, TIERGATE_OWNER_KEY=FACTS["owner"])
    assert (ran.returncode, "Traceback" in ran.stderr) == (code, False), ran.stderr
    assert ("standard output" in ran.stderr) == (out is not None)
    if kind is not None:
        told = json.loads(ran.stdout)
        assert (told["errorType"], told["details"]) == (kind, {"a": 1} if kind != "UNEXPECTED_ANSWER" else {})


def test_a_new_key_goes_where_a_link_leads_and_replaces_one_of_any_prefix(
    run: Callable[..., subprocess.CompletedProcess[str]], script: Script, tmp_path: Path
) -> None:
    answers: list[object] = [SIGNING, ISSUED]
    headers = {"Content-Type": "application/json"}
    script.answers = [(200, headers, json.dumps(answer).encode()) for answer in answers]
    (tmp_path / "real.key").write_text(f"acme-{'0' * 64}\n")
    (tmp_path / "link.key").symlink_to("real.key")
    arguments = ("keys", "rotate", "--agent-id", "4", "--out")
    variables = {"TIERGATE_URL": script.url, "TIERGATE_OWNER_KEY": FACTS["owner"]}
    ran = run(*arguments, "link.key", **variables)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "link.key").is_symlink()
    assert (tmp_path / "real.key").read_text() == "svc_live_v1_x\n"
    (tmp_path / "private.key").write_text(FACTS["owner"])
    assert "no API key that may be replaced" in run(*arguments, "private.key", **variables).stderr


def test_the_installed_package_has_the_command_that_uvx_runs(installed: Path) -> None:
    command = [str(installed / "bin/tiergate"), "keys", "generate", "--help"]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(installed)}
    helped = subprocess.run(command, cwd=installed, env=variables, check=True, capture_output=True, text=True)
    assert "uvx --from 'tiergate[eth]' tiergate keys generate" in helped.stdout
