"""The package installs from its folder, typed; and the examples of its README run as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import jwt
import pytest
from conftest import API, GATEWAY, ROOT, Owned, Script
from fastapi import FastAPI
from test_gateway import ask

from tiergate import Tiergate

README = (ROOT / "README.md").read_text()


def test_the_package_installs_from_its_folder_with_its_types(installed: Path) -> None:
    shipped = {path.name for path in (installed / "tiergate").iterdir() if path.is_file()}
    assert shipped == {path.name for path in (ROOT / "tiergate").iterdir() if path.is_file()}
    assert "py.typed" in shipped
    program = "import tiergate, sys; print(tiergate.__file__, 'fastapi' in sys.modules, 'eth_account' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], cwd=installed, check=True, capture_output=True, text=True)
    assert told.stdout.split() == [str(installed / "tiergate/__init__.py"), "False", "False"]


def test_httpx2_may_be_missing_or_stand_for_httpx() -> None:
    missing = "import sys; sys.modules['httpx2'] = None"
    for before in (missing, "import httpx2; httpx2.alias_httpx()"):
        program = f"{before}; import httpx, tiergate; print(issubclass(tiergate.GatewayAuth, httpx.Auth))"
        told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
        assert told.stdout.split() == ["True"]


def test_the_examples_of_the_readme_run(
    fresh: Callable[[str], Owned], upstream: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = fresh("diamond")
    (tmp_path / "owner.key").write_text("0x" + bytes(agent.owner.key).hex())
    upstream.answers = [(200, {}, b"")]
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 11
    names: dict[str, object] = {}
    for example in examples:
        for ours, real in [
            ("https://verify.example", API),
            ("https://weather.example", GATEWAY),
            ("agent_id = 4", f"agent_id = {agent.id}"),
        ]:
            example = example.replace(ours, real)
        exec(compile(example, "README.md", "exec", dont_inherit=True), names)
    app = names["app"]
    assert isinstance(app, FastAPI)
    assert ask(app, "/forecast", {}).status_code == 403
    assert isinstance(names["service"], Tiergate)
    with pytest.raises(jwt.InvalidTokenError):
        cast(Callable[[dict[str, str]], object], names["caller"])({})
