"""The real service, agents of one's own, and servers that answer as they are told."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from httpx._config import DEFAULT_TIMEOUT_CONFIG as HTTPX
from httpx2._config import DEFAULT_TIMEOUT_CONFIG as HTTPX2

from tiergate import Tiergate

#: See tests/clients/mod.rs, which starts all that. Without it the tests fail.
FACTS: dict[str, Any] = json.loads(os.environ["TEST_SERVICE"])
API: str = FACTS["api"]
GATEWAY: str = FACTS["gateway"]
STRANGER: LocalAccount = Account.from_key(FACTS["stranger"])
ROOT = Path(__file__).parents[1]

# Each HTTP client that a test makes would read all authorities of the machine, which took a third of the suite's time. Nothing here
# speaks TLS.
ssl.SSLContext.load_verify_locations = lambda *_, **__: None  # type: ignore[method-assign]

# Five seconds may be too short for a machine that is busy with other tests.
HTTPX.connect = HTTPX.read = HTTPX.write = HTTPX.pool = 60.0
HTTPX2.connect = HTTPX2.read = HTTPX2.write = HTTPX2.pool = 60.0


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package is installed."""
    folder = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(folder), str(ROOT)], check=True)
    return folder


@dataclass(frozen=True)
class Owned:
    """An agent and its owner."""

    id: int
    owner: LocalAccount


@pytest.fixture(scope="session")
def service() -> Iterator[Tiergate]:
    """A client that repeats nothing."""
    with Tiergate(API, retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def fresh() -> Callable[[str], Owned]:
    """Gives an agent that nobody has used: unstaked, bronze or diamond."""
    return lambda kind: Owned(int(FACTS[kind].pop()), Account.from_key(FACTS["owner"]))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits, which take no time."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr(anyio, "sleep", sleep)
    return waits


@dataclass
class Script:
    """Answers in their order; `None` breaks the connection off. The last one stays. A body in pieces has no length."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes | Iterable[bytes]] | None] = field(default_factory=list)
    #: Method, path, headers in small letters, body.
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    #: Set when a request has arrived.
    arrived: threading.Event = field(default_factory=threading.Event)
    #: Cleared: answers wait.
    go: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def script() -> Iterator[Script]:
    """A server that answers as it is told."""
    yield from _serve()


@pytest.fixture
def elsewhere() -> Iterator[Script]:
    """Another such server: another origin."""
    yield from _serve()


@pytest.fixture
def upstream() -> Iterator[Script]:
    """The server behind the gateway."""
    yield from _serve(int(FACTS["upstreams"][2].rsplit(":", 1)[1]), FACTS["upstreams"][2].rsplit(":", 1)[0])


def _serve(port: int = 0, host: str = "127.0.0.1") -> Iterator[Script]:
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            # A connection that is closed before its chunks are read is reset, and the answer may be lost.
            while "transfer-encoding" in self.headers and (size := int(self.rfile.readline(), 16)):
                sent += self.rfile.read(size + 2)[:-2]
            if "transfer-encoding" in self.headers:
                self.rfile.readline()
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.seen.append((self.command, self.path, headers, sent))
            script.arrived.set()
            script.go.wait()
            answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            if answer is not None:
                status, more, body = answer
                length = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {}
                self.send_response(status)
                for name, value in (length | more).items():
                    self.send_header(name, value)
                self.end_headers()
                # The client may hang up.
                with suppress(OSError):
                    for piece in [body] if isinstance(body, bytes) else body:
                        self.wfile.write(piece)

        do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do_PROPFIND = answer

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer((host, port), Handler) as server:
        server.daemon_threads = True
        script.go.set()
        script.url = f"http://{host}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield script
        script.go.set()
        server.shutdown()
        thread.join()
