"""The gateway under test, twice: in the clear and with TLS, each as `tiergate dev` with tenants of our own added."""

import functools
import json
import os
import subprocess

from h2_upstream import H2Upstream
from harness import Process, free_port, run, until
from upstream import Upstream

LIMITS = "1000000,1000000,1000000,1000000"

HTTP_TENANT = """id = "http"
hosts = ["http.example"]
upstreams = ["127.0.0.1:{http}"]
[timeouts]
read = "5s"
[[routes]]
path = "/public/*"
access = "public"
"""

WS_TENANT = """id = "ws"
hosts = ["ws.example"]
upstreams = ["127.0.0.1:{ws}"]
[[routes]]
path = "/open/*"
access = "public"
upgrades = true
[[routes]]
path = "/agents/*"
upgrades = true
[[routes]]
path = "/plain/*"
access = "public"
"""

GRPC_TENANT = """id = "grpc"
hosts = ["grpc.example"]
upstreams = ["h2c://127.0.0.1:{grpc}"]
[[routes]]
path = "/open.Test"
access = "public"
"""

MCP_TENANT = """id = "mcp"
hosts = ["mcp.example"]
upstreams = ["127.0.0.1:{mcp}"]
# The server answers to its own name only.
host_header = "upstream"
"""

H2C_TENANT = """id = "h2c"
hosts = ["h2c.example"]
upstreams = ["h2c://127.0.0.1:{h2c}"]
[timeouts]
read = "5s"
[[routes]]
path = "/public/*"
access = "public"
"""

TENANTS = {"http": HTTP_TENANT, "ws": WS_TENANT, "grpc": GRPC_TENANT, "mcp": MCP_TENANT, "h2c": H2C_TENANT}


class Gateway:
    """One process."""

    def __init__(self, program, folder, name, ports, env=None, scheme="http", ca=None):
        self.scheme, self.program, self.ca = scheme, program, ca
        self.api, self.port, self.admin = free_port(), free_port(), free_port()
        arguments = [program, "dev"]
        doors = [("api", self.api), ("gateway", self.port), ("admin", self.admin)]
        doors += [("upstream", free_port()), ("chain", free_port())]
        for door, port in doors:
            arguments += [f"--{door}", f"127.0.0.1:{port}"]
        env = {
            "TIERGATE__TIERS__REQUESTS_PER_MINUTE": LIMITS,
            "TIERGATE__ABUSE__FAILURES_PER_MINUTE": "0",
            **(env or {}),
        }
        self.process = Process(arguments, os.path.join(folder, f"{name}.log"), env)
        text = until("tiergate dev is ready", lambda: self._printed("Ctrl-C stops"))
        config = next(line.split()[1] for line in text.splitlines() if line.strip().startswith("config "))
        self.config = config
        tenants = os.path.join(os.path.dirname(config), "tenants.d")
        for tenant, template in TENANTS.items():
            with open(os.path.join(tenants, f"{tenant}.toml"), "w", encoding="ascii") as file:
                file.write(template.format(**ports))
        self.process.hang_up()
        until("the tenants are in force", lambda: self._printed("are in force"))
        self.key = self._generate_key()

    def _printed(self, text):
        log = self.process.log()
        assert self.process.is_alive(), log
        return log if text in log else None

    def _generate_key(self):
        """A key of the sample agent 4, which has the highest tier."""
        key_file = os.path.join(os.path.dirname(self.config), "agent-4.key")
        sign = ["sign", "--agent-id", "4", "--owner-key-file", key_file, "--config", self.config]
        body = subprocess.run([self.program, *sign], capture_output=True, check=True).stdout
        url = f"{self.scheme}://127.0.0.1:{self.api}/keys/generate"
        _, out, err = run(["curl", "-ksS", "-d", "@-", url], stdin=body)
        assert "apiKey" in out, out + err
        return json.loads(out)["apiKey"]

    def curl(self, path, *options, host="http.example"):
        """Runs curl against the gateway under a tenant's name; gives its status, output and error output."""
        resolve = ["--resolve", f"{host}:{self.port}:127.0.0.1"]
        ca = ["--cacert", self.ca] if self.ca else []
        return run(["curl", "-sS", "-m", "50", *ca, *resolve, *options, f"{self.scheme}://{host}:{self.port}{path}"])


class World:
    """Everything that checks need."""

    def __init__(self, program, folder):
        self.folder = folder
        self.ports = {name: free_port() for name in TENANTS}
        self.upstream = Upstream(self.ports["http"])
        self.h2_upstream = H2Upstream(self.ports["h2c"])
        self.clear = Gateway(program, folder, "clear", self.ports)
        self.tls_problem = None
        self.others = []

    @functools.cached_property
    def tls(self):
        """The gateway with TLS, started when it is first asked for; `None` where it can't be."""
        try:
            return self._with_tls(self.clear.program)
        except (AssertionError, OSError) as error:
            self.tls_problem = f"no gateway with TLS: {str(error)[-200:]}"
            print(self.tls_problem)
            return None

    def _with_tls(self, program):
        cert, key = (os.path.join(self.folder, name) for name in ("tls.crt", "tls.key"))
        names = ",".join(f"DNS:{name}.example" for name in TENANTS)
        status, _, err = run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ]
            + ["-subj", "/CN=conformance", "-addext", f"subjectAltName={names}", "-keyout", key, "-out", cert]
        )
        assert status == 0, err
        env = {"TIERGATE__LISTEN__TLS__CERT": cert, "TIERGATE__LISTEN__TLS__KEY": key}
        return Gateway(program, self.folder, "tls", self.ports, env, "https", cert)

    def is_alive(self):
        return self.clear.process.is_alive()

    def stop(self):
        # Not `self.tls`, which would start it.
        for gateway in (self.clear, self.__dict__.get("tls")):
            if gateway:
                gateway.process.stop()
        for other in self.others:
            other.stop()
