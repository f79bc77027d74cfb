"""The gateway under test, twice: in the clear and with TLS, with tenants of our own and one development chain behind."""

import json
import os
import re
import subprocess

from h2_upstream import H2Upstream
from harness import Process, free_port, run, seconds, until
from upstream import Upstream

# The well-known key of the sample agent 4's owner.
AGENT_4_KEY = "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a"

LIMITS = [1_000_000] * 4

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


CONFIG = """[listen]
api = "127.0.0.1:{api}"
gateway = ["127.0.0.1:{gateway}"]
admin = "127.0.0.1:{admin}"
{tls}
[chain]
chain_id = {chainId}
rpc_urls = ["{rpcUrl}"]
multicall = "{multicall}"
[chain.contracts]
identity = "{identity}"
stake_vault = "{stakeVault}"
reputation = "{reputation}"
validation = "{validation}"
organization = "{organization}"
[store.embedded]
create = true
path = "{data}"
[signature]
max_ahead = "0s"
[tiers]
requests_per_minute = {limits}
[abuse]
failures_per_minute = 0
"""


class Gateway:
    """One process."""

    def __init__(self, program, folder, chain, ports, tls=None):
        """`tls`: the files of a certificate and its key."""
        self.scheme, self.program, self.ca = "https" if tls else "http", program, tls and tls[0]
        self.api, self.port, self.admin = free_port(), free_port(), free_port()
        tenants = os.path.join(folder, "tenants.d")
        os.makedirs(tenants)
        for tenant, template in TENANTS.items():
            with open(os.path.join(tenants, f"{tenant}.toml"), "w", encoding="ascii") as file:
                file.write(template.format(**ports))
        doors = {"api": self.api, "gateway": self.port, "admin": self.admin}
        key_pair = f'[listen.tls]\ncert = "{tls[0]}"\nkey = "{tls[1]}"' if tls else ""
        self.config = os.path.join(folder, "tiergate.toml")
        with open(self.config, "w", encoding="ascii") as file:
            file.write(CONFIG.format(**doors, tls=key_pair, limits=LIMITS, data=os.path.join(folder, "data"), **chain))
        log = os.path.join(folder, "log")
        self.process = Process([program, "run", "--config", self.config], log)
        try:
            until("the gateway is ready", self._is_ready)
            self.key = self._generate_key(os.path.join(folder, "agent-4.key"))
        except BaseException:
            self.process.stop()
            raise

    def _is_ready(self):
        assert self.process.is_alive(), self.process.log()
        ready = run(["curl", "-ksf", f"{self.scheme}://127.0.0.1:{self.api}/readyz"])[1]
        # A new store takes no signature for a moment.
        return "ready" in ready and "signatures" not in ready

    def _generate_key(self, key_file):
        """A key of the sample agent 4, which has the highest tier."""
        with open(key_file, "w", encoding="ascii") as file:
            file.write(AGENT_4_KEY)
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
        return run(["curl", "-sS", "-m", str(seconds(50)), *ca, *resolve, *options, f"{self.scheme}://{host}:{self.port}{path}"])


class World:
    """Everything that checks need."""

    def __init__(self, program, folder):
        self.folder, self.program = folder, program
        self.ports = {name: free_port() for name in TENANTS}
        self.upstream = Upstream(self.ports["http"])
        self.h2_upstream = H2Upstream(self.ports["h2c"])
        self.others = []
        arguments = [f"{program}-dev", "--only-chain", "--chain", f"127.0.0.1:{free_port()}"]
        chain = Process(arguments, os.path.join(folder, "chain.log"))
        self.others.append(chain)
        facts = until("the chain's addresses", lambda: re.search(r"^{.*}$", chain.log(), re.MULTILINE))
        self.chain = json.loads(facts[0])
        self.clear = self._gateway("clear")
        self._tls = None

    def _gateway(self, name, tls=None):
        gateway = Gateway(self.program, os.path.join(self.folder, name), self.chain, self.ports, tls)
        self.others.append(gateway.process)
        return gateway

    @property
    def tls(self):
        """The gateway with TLS, started when it is first asked for. One that does not start fails every check of it."""
        if self._tls is None:
            try:
                self._tls = self._gateway("tls", self._certificate())
            except (AssertionError, OSError) as error:
                self._tls = error
        if isinstance(self._tls, Exception):
            raise AssertionError(f"no gateway with TLS: {str(self._tls)[-200:]}")
        return self._tls

    def _certificate(self):
        cert, key = (os.path.join(self.folder, name) for name in ("tls.crt", "tls.key"))
        names = ",".join(f"DNS:{name}.example" for name in TENANTS)
        curve = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        subject = ["-subj", "/CN=conformance", "-addext", f"subjectAltName={names}", "-keyout", key, "-out", cert]
        status, _, err = run(["openssl", "req", *curve, *subject], timeout=600)
        assert status == 0, err
        return cert, key

    def is_alive(self):
        """Whether every gateway that was started still runs."""
        gateways = [self.clear] + ([self._tls] if isinstance(self._tls, Gateway) else [])
        return all(gateway.process.is_alive() for gateway in gateways)

    def stop(self):
        for other in reversed(self.others):
            other.stop()
