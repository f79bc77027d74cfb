"""The servers that are measured: how each is configured and started. All listen on 127.0.0.1 alone."""

import hashlib
import json
import subprocess
import time
from dataclasses import dataclass

import rig as rigs

OWNER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
# The development chain's first account, known to everybody.
OWNER_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
STAKE = 600_000 * 10**18
AGENTS = 1_000
UPSTREAM, AUTH, CHAIN, REDIS = 19010, 19011, 18555, 16381


@dataclass
class Subject:
    """Something that answers requests, and where."""

    name: str
    # The cores of what asks it.
    load: str
    port: int
    path: str = "/private/small"
    process: object = None
    scheme: str = "http"
    agents: int = AGENTS
    # What it asks about each request.
    beside: object = None

    def pids(self):
        """Its processes; none of the upstream, which shares its core with others."""
        return [pid for process in (self.process, self.beside) if process for pid in rigs.family(process.pid)]

    def url(self):
        """Where wrk asks."""
        return f"{self.scheme}://127.0.0.1:{self.port}"


def envoy_program(root):
    """The newest Envoy, as the tests have it; `None` where it can't be had."""
    program = root / "tools/servers/envoy/envoy"
    if not program.exists():
        subprocess.run([root / "scripts/other-servers", "envoy"], capture_output=True)
    return program if program.exists() else None


def nginx(rig, name, servers, workers=1):
    """The arguments for an nginx with these servers."""
    folder = rig.folder / name
    folder.mkdir(exist_ok=True)
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    process = f"worker_processes {workers};" if workers > 1 else "master_process off;"
    config = rig.write(f"{name}.conf", f"""
daemon off; {process} pid {folder}/pid; error_log {folder}/error; worker_rlimit_nofile {rig.many};
events {{ worker_connections {rig.many // 2}; }}
http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; client_body_buffer_size 64k;
  open_file_cache max=100; sendfile on; {temporary}
  upstream u {{ server 127.0.0.1:{UPSTREAM}; keepalive 1024; keepalive_requests 1000000000; }}
  upstream auth {{ server 127.0.0.1:{AUTH}; keepalive 1024; keepalive_requests 1000000000; }}
  {servers} }}""")
    return ["nginx", "-e", f"{folder}/error", "-c", config]


def upstream(rig, cores):
    """The server behind the proxies, and the one that nginx and Envoy ask: answers without any work."""
    (rig.folder / "www").mkdir()
    for name, size in (("10k", 10 << 10), ("1m", 1 << 20)):
        rig.write(f"www/{name}", "x" * size)
    places = "".join(
        f"location /{kind}/ {{ alias {rig.folder}/www/; }} location = /{kind}/small {{ return 200 '{'x' * 200}'; }}"
        for kind in ("public", "private"))
    servers = (f"server {{ listen 127.0.0.1:{UPSTREAM} backlog=4096; {places} }}"
               f"server {{ listen 127.0.0.1:{AUTH} backlog=4096; location / {{ return 200; }} }}")
    rig.start("upstream", cores, nginx(rig, "upstream", servers), UPSTREAM)


def plain_nginx(rig, port, auth=False, tls=False, workers=1):
    """nginx as a proxy, plain or with auth_request."""
    ask = "auth_request /auth;" if auth else ""
    listen = f"{port} {'ssl' if tls else ''} backlog=4096"
    certificate = f"ssl_certificate {rig.folder}/cert.pem; ssl_certificate_key {rig.folder}/key.pem;" if tls else ""
    keep = 'proxy_http_version 1.1; proxy_set_header Connection "";'
    server = f"""server {{ listen 127.0.0.1:{listen}; {certificate}
  location / {{ {ask} proxy_pass http://u; {keep} proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; }}
  location = /auth {{ internal; proxy_pass http://auth; {keep} proxy_pass_request_body off; proxy_set_header Content-Length ""; }} }}"""
    return nginx(rig, f"nginx-{port}", server, workers)


def return_200(rig, port):
    """nginx that answers POST /verify without any work, with a body as long as Tiergate's."""
    return nginx(rig, f"nginx-{port}", f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 '{'x' * 500}'; }} }}")


def key(agent):
    """The key that `examples/fill.rs` gives an agent."""
    return f"svc_live_v1_{agent:064x}"


def haproxy(rig, port, works=False, tls=False, threads=1, agents=AGENTS):
    """haproxy, plain or doing what Tiergate does: hash, look-up, a count for each agent, the same headers."""
    keys = rig.write(f"keys-{agents}.map", "".join(
        f"{hashlib.sha256(key(agent).encode()).hexdigest().upper()} {agent}:{OWNER}:4:{STAKE}\n" for agent in range(1, agents + 1)))
    pem = f"ssl crt {rig.folder}/both.pem" if tls else ""
    work = f"""
  http-request set-var(txn.who) req.hdr(x-api-key),sha2(256),hex,map_str({keys})
  http-request deny deny_status 401 unless {{ var(txn.who) -m found }}
  http-request set-var(txn.agent) var(txn.who),word(1,:)
  http-request track-sc0 var(txn.agent) table agents
  http-request set-var(txn.rate) sc_http_req_rate(0)
  http-request deny deny_status 429 if {{ var(txn.rate) -m int gt 1000000 }}
  http-request del-header x-agent- -m beg
  http-request del-header x-api-key
  http-request set-header x-agent-id %[var(txn.agent)]
  http-request set-header x-agent-owner %[var(txn.who),word(2,:)]
  http-request set-header x-agent-tier %[var(txn.who),word(3,:)]
  http-request set-header x-agent-staked-amount %[var(txn.who),word(4,:)]
  http-request set-header x-agent-endpoint-mismatch false
  http-request set-header x-forwarded-for %[src]
  http-request set-header x-forwarded-proto http
  http-request set-header x-forwarded-host %[req.hdr(host)]
  http-request set-header forwarded for=%[src];host=\\"%[req.hdr(host)]\\";proto=http
  http-request set-var(txn.id) uuid
  http-request set-header x-request-id %[var(txn.id)]
  http-response del-header x-ratelimit- -m beg
  http-response del-header ratelimit -m beg
  http-response set-header x-request-id %[var(txn.id)]
  http-response set-header x-ratelimit-limit 1000000
  http-response set-header x-ratelimit-remaining %[int(1000000),sub(txn.rate)]
  http-response set-header ratelimit-policy \\"agent\\";q=1000000;w=60
  http-response set-header ratelimit \\"agent\\";r=%[int(1000000),sub(txn.rate)]""" if works else ""
    config = rig.write(f"haproxy-{port}.cfg", f"""
global
  nbthread {threads}
  maxconn {rig.many // 2 - 100}
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout client 600s
  timeout server 60s
  timeout connect 5s
  http-reuse always
frontend f
  bind 127.0.0.1:{port} backlog 4096 {pem}{work}
  default_backend u
backend u
  server u 127.0.0.1:{UPSTREAM}
backend agents
  stick-table type string len 32 size 200k expire 60s store http_req_rate(60s)
""")
    return ["haproxy", "-db", "-f", config]


def envoy(rig, program, port, asks=None):
    """Envoy as a proxy with one worker, plain or with ext_authz: it `asks` over "http" or "grpc" at a port."""
    protocol, asked = asks or ("", AUTH)
    http = {"uri": f"127.0.0.1:{asked}", "cluster": "auth", "timeout": "1s"}
    package = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "router", "typed_config": {"@type": f"{package}.http.router.v3.Router"}}
    authz = {"name": "authz", "typed_config": {
        "@type": f"{package}.http.ext_authz.v3.ExtAuthz",
        **({"grpc_service": {"envoy_grpc": {"cluster_name": "auth"}, "timeout": "1s"}} if protocol == "grpc" else
           {"allowed_headers": {"patterns": [{"exact": "x-api-key"}]},
            "http_service": {"server_uri": http, "path_prefix": "/envoy/measured" if asked != AUTH else ""}})}}
    of_tenant = {"typed_per_filter_config": {"authz": {
        "@type": f"{package}.http.ext_authz.v3.ExtAuthzPerRoute",
        "check_settings": {"context_extensions": {"tenant": "measured"}}}}} if protocol == "grpc" else {}
    manager = {
        "@type": f"{package}.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "f",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"],
                                            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "u"}, **of_tenant}]}]},
        "http_filters": [authz, router] if asks else [router]}
    at = lambda where: {"socket_address": {"address": "127.0.0.1", "port_value": where}}
    cluster = lambda name, where, **more: {"name": name, "type": "STATIC", **more, "load_assignment": {
        "cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": at(where)}}]}]}}
    http_2 = {"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}}}}} if protocol == "grpc" else {}
    config = rig.write(f"envoy-{port}.json", json.dumps({"static_resources": {
        "listeners": [{"address": at(port), "filter_chains": [{"filters": [
            {"name": "http", "typed_config": manager}]}]}],
        "clusters": [cluster("u", UPSTREAM), cluster("auth", asked, **http_2)]}}))
    return [program, "-c", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]


def chain(rig, development, cores):
    """The development chain of tiergate-dev, with registries that say the same of every agent: a profile costs no minting."""
    rig.start("chain", cores, [development, "--only-chain", "--chain", f"127.0.0.1:{CHAIN}"], CHAIN)
    while not (line := (rig.folder / "chain.log").read_text()).startswith("{") or "}" not in line:
        pass
    facts = json.loads(line.splitlines()[0])
    word = lambda value: f"7f{value:064x}"  # PUSH32
    uri = word(int.from_bytes(b"ipfs://agent".ljust(32, b"\0"), "big"))
    # ownerOf(uint256) returns the owner; whatever else is asked for, tokenURI(uint256), a text.
    identity = ("5f3560e01c636352211e14605e57" + "6020" + "5f52" + "600c" + "602052" + uri + "604052" + "6060" + "5ff3")
    identity = identity.replace("605e57", f"60{len(identity) // 2:02x}57") + "5b" + word(int(OWNER, 16)) + "5f52" + "60205ff3"
    stake = word(STAKE) + "5f52" + "60205ff3"
    for address, code in ((facts["identity"], identity), (facts["stakeVault"], stake)):
        body = {"jsonrpc": "2.0", "id": 1, "method": "anvil_setCode", "params": [address, "0x" + code]}
        subprocess.run(["curl", "-sf", "-H", "Content-Type: application/json", "-d", json.dumps(body), facts["rpcUrl"]],
                       check=True, capture_output=True)
    return facts


def tiergate(rig, binary, facts, port, store, tls=False):
    """Tiergate: the gateway at `port`, the API at the next one, metrics at the one after, and other gateways' questions at the last."""
    keep = (f'kind = "redis"\n[store.redis]\nurl = "{store}"\ntimeout = "2s"' if str(store).startswith("redis:")
            else f'kind = "embedded"\n[store.embedded]\ncreate = true\npath = "{store}"')
    certificate = f'[listen.tls]\ncert = "{rig.folder}/cert.pem"\nkey = "{rig.folder}/key.pem"\n' if tls else ""
    config = rig.write(f"tiergate-{port}.toml", f"""
[listen]
gateway = ["127.0.0.1:{port}"]
api = "127.0.0.1:{port + 1}"
authz = ["127.0.0.1:{port + 3}"]
admin = "127.0.0.1:{port + 2}"
max_connections = {rig.many // 2}
{certificate}
[chain]
rpc_urls = ["{facts['rpcUrl']}"]
chain_id = {facts['chainId']}
multicall = "{facts['multicall']}"
max_head_age = "0s"
[chain.contracts]
identity = "{facts['identity']}"
stake_vault = "{facts['stakeVault']}"
[tiers]
requests_per_minute = [1000000, 1000000, 1000000, 1000000]
[store]
{keep}
[[tenants]]
id = "measured"
hosts = ["*"]
upstreams = ["127.0.0.1:{UPSTREAM}"]
[[tenants.routes]]
path = "/public/*"
access = "public"
[[tenants]]
id = "mcp"
hosts = ["mcp.example"]
upstreams = ["127.0.0.1:{UPSTREAM}"]
mcp = true
[[tenants.routes]]
path = "/private/small"
tools = ["billing_*", "transfer"]
min_tier = 3
[[tenants.routes]]
path = "/private/small"
tools = ["search"]
""")
    return [binary, "run", "--config", config]


def certificate(rig):
    """A self-signed certificate, as the three files that the servers want."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-subj", "/CN=measured.example", "-addext", "subjectAltName=DNS:measured.example", "-days", "2",
                    "-keyout", rig.folder / "key.pem", "-out", rig.folder / "cert.pem"], check=True, capture_output=True)
    rig.write("both.pem", (rig.folder / "cert.pem").read_text() + (rig.folder / "key.pem").read_text())


def until_ready(api, tls):
    """Waits until Tiergate has found its chain and its store."""
    url = f"http{'s' if tls else ''}://127.0.0.1:{api}/readyz"
    ended = time.monotonic() + 120
    while subprocess.run(["curl", "-skf", url], capture_output=True).returncode:
        if time.monotonic() > ended:
            raise RuntimeError("Tiergate does not get ready")
        time.sleep(0.05)


def request(subject):
    """One request, as bytes."""
    return f"GET {subject.path} HTTP/1.1\r\nHost: measured.example\r\nX-API-Key: {key(1)}\r\n\r\n".encode()


def script(rig, subject, method, path, headers, body="nil"):
    """A script for wrk: the requests of the agents in turn."""
    return rig.write(f"load-{subject.port}.lua", f"""
local requests, turn = {{}}, 0
for agent = 1, {subject.agents} do
  local key = string.format("svc_live_v1_%064x", agent)
  requests[agent] = wrk.format("{method}", "{path}", {{ ["Host"] = "measured.example", {headers} }}, {body})
end
request = function() turn = turn % #requests + 1; return requests[turn] end""")


def gets(rig, subject):
    """The agents' GETs."""
    return script(rig, subject, "GET", subject.path, '["X-API-Key"] = key')


def gets_of(size):
    """GETs of an answer of this size."""
    return lambda rig, subject: script(rig, subject, "GET", f"/private/{size}", '["X-API-Key"] = key')


def posts(rig, subject):
    """POSTs of 1 KiB."""
    return script(rig, subject, "POST", subject.path, '["X-API-Key"] = key', 'string.rep("x", 1024)')


def verifies(rig, subject):
    """POSTs to /verify."""
    return script(rig, subject, "POST", "/verify", '["Content-Type"] = "application/json"', """'{"apiKey":"' .. key .. '"}'""")


def signed(bench, subject, count):
    """So many GETs that are signed beforehand; wrk stops when all were sent."""
    argv = [bench.examples / "sign_many", OWNER_KEY, bench.facts["identity"], str(subject.agents), str(count)]
    lines = bench.rig.write("signed", subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return bench.rig.write("signed.lua", f"""
local line = io.lines("{lines}")
request = function()
  local agent, signature, nonce, time = line():match("(%S+) (%S+) (%S+) (%S+)")
  return wrk.format("GET", "{subject.path}", {{ ["Host"] = "measured.example", ["X-Agent-Id"] = agent,
    ["X-Agent-Signature"] = signature, ["X-Agent-Nonce"] = nonce, ["X-Agent-Timestamp"] = time }})
end""")
