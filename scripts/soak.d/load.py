"""The processes of `scripts/soak` and everything that asks them."""

import collections
import http.client
import json
import os
import random
import re
import secrets
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import time

from rig import Chain, Redis, Service, ask, free_port, read, start, until
from upstream import Upstream

# Agent 1 has one request a minute; agent 2 is given to another owner and back; the key of agent 3 is rotated again and
# again; agent 4 asks for the most.
LIMITED, SOLD, ROTATED, STEADY = 1, 2, 3, 4
TIERS = [1, 1_000_000, 1_000_000, 1_000_000]
DEPLOYER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"

TENANTS = """
[[tenants]]
id = "steady"
hosts = ["*"]
upstreams = ["127.0.0.1:{steady}"]
[[tenants.routes]]
path = "/public/*"
access = "public"
[[tenants.routes]]
path = "/visited/*"
access = "public"
requests_per_minute = 2
[[tenants]]
id = "shapes"
hosts = ["shapes.example"]
upstreams = ["127.0.0.1:{shapes}"]
[[tenants]]
id = "echo"
hosts = ["echo.example"]
upstreams = ["127.0.0.1:{echo}"]
[[tenants.routes]]
path = "/*"
upgrades = true
"""

# A file of its own: a reload may not take away all of them.
FRAGILE = """
id = "fragile"
hosts = ["fragile.example"]
upstreams = ["127.0.0.1:{0}", "127.0.0.1:{1}"]
[timeouts]
read = "1s"
connect = "1s"
[limits]
max_in_flight = 8
max_queued = 2
"""


class Echo(socketserver.BaseRequestHandler):
    """Agrees to an upgrade, and sends back what it gets."""

    def handle(self):
        self.request.recv(65_536)
        self.request.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while data := self.request.recv(65_536):
            self.request.sendall(data)


class Place:
    """The processes, what is asked of them, and what came of it."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        # The default that measuring turns off, and a limit for the flood.
        os.environ |= {"TIERGATE__ABUSE__FAILURES_PER_MINUTE": "300", "TIERGATE__LISTEN__MAX_CONNECTIONS_PER_NETWORK": "300"}
        self.counts, self.failed, self.over, self.threads = collections.Counter(), [], threading.Event(), []
        self.chain = Chain(program, folder)
        self.redis = Redis(f"{folder}/redis", "--appendonly", "yes")
        self.steady = free_port()
        self.start_upstream(self.steady)
        self.fragile = {port: self.start_upstream(port) for port in (free_port(), free_port())}
        shapes = Upstream(free_port())
        shapes.seen = collections.deque(maxlen=1)
        echo = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo)
        echo.daemon_threads = True
        threading.Thread(target=echo.serve_forever, daemon=True).start()
        tenants = TENANTS.format(steady=self.steady, shapes=shapes.port, echo=echo.server_address[1])
        stores = [f'kind = "redis"\n[store.redis]\nurl = "redis://127.0.0.1:{self.redis.port}"'] * 2
        stores += [f'kind = "embedded"\n[store.embedded]\ncreate = true\npath = "{folder}/data-{number}"' for number in (3, 4)]
        # The last one is there to be killed, and has a certificate to watch.
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=soak.example",
                        "-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt"], check=True, capture_output=True)
        secured = f'\n[listen.tls]\ncert = "{folder}/tls.crt"\nkey = "{folder}/tls.key"\n'
        *self.services, self.spare = [
            Service(self.chain, f"{folder}/service-{number}", store, TIERS, tenants + secured * (number == len(stores)))
            for number, store in enumerate(stores, 1)]
        self.put("fragile", FRAGILE.format(*self.fragile))
        until("the tenant is there", lambda: set(self.statuses("fragile.example", "/public/x")) == {401})
        # Both replicas at Redis have the same keys.
        self.keys = {agent: [self.rotate(replica, agent)[1] for replica in (0, 2)] for agent in (LIMITED, SOLD, ROTATED, STEADY)}
        self.keys = {agent: [shared, shared, own] for agent, (shared, own) in self.keys.items()}

    def start_upstream(self, port):
        return start(f"{self.folder}/upstream", f"{self.program}-dev", "--only-upstream", "--upstream", f"127.0.0.1:{port}")

    def put(self, name, text):
        """Writes a tenant's file for every replica, or removes it."""
        for number in (1, 2, 3):
            path = f"{self.folder}/service-{number}/tenants.d/{name}.toml"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if text:
                with open(path, "w") as out:
                    out.write(text)
            else:
                os.remove(path)

    def statuses(self, host, path):
        """Each replica's answer without a credential."""
        return [self.call("asked", replica, "gateway", "GET", path, range(600), headers={"Host": host})[0] for replica in range(3)]

    def rpc(self, method, *params):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return ask(f"http://{self.chain.ports['chain']}", json.dumps(body).encode())[1]

    def owner(self, agent):
        return re.search(rf"agent {agent} +tier \d +owner (\w+)", read(f"{self.folder}/dev"))[1]

    def transfer(self, agent, from_, to):
        identity = re.search(r'identity = "(\w+)"', read(self.chain.config))[1]
        data = "0x23b872dd" + "".join(word.removeprefix("0x").lower().rjust(64, "0") for word in (from_, to, f"{agent:x}"))
        assert "result" in self.rpc("eth_sendTransaction", {"from": from_, "to": identity, "data": data})

    def owners(self, agent):
        """The owners that the upstream is told by the replicas."""
        answers = [self.call("sold", replica, "gateway", "GET", "/private", {200}, headers=self.key(replica, agent)) for replica in range(3)]
        return {json.loads(said)["headers"]["x-agent-owner"] if status == 200 else status for status, said in answers}

    def rotate(self, replica, agent):
        """Replaces the agent's key; returns the status, and the key if there is one."""
        status, body = self.call("rotate", replica, "api", "POST", "/keys/rotate", {200}, self.chain.sign(agent))
        return status, json.loads(body)["apiKey"] if status == 200 else None

    def probes(self):
        """Where the probe asks, and with which key: through each replica, and the upstream itself."""
        ways = [(service.ports["gateway"], self.keys[STEADY][replica]) for replica, service in enumerate(self.services)]
        return [*ways, (f"127.0.0.1:{self.steady}", "none")]

    def record(self, sent, got, kind, replica, status, right, said=b""):
        self.counts[kind, status] += 1
        if status not in right:
            self.failed.append((sent, got, kind, replica, status, said[:200]))

    def call(self, kind, replica, door, method, path, right, body=None, headers=(), connection=None, source=None, check=None):
        """One request; without a connection it gets one of its own."""
        headers, sent, said = dict(headers), time.monotonic(), b""
        # Only if it must: a port that is bound could be that of a Redis which is down at the moment.
        source = source and (source, 0)
        once = connection or http.client.HTTPConnection(self.services[replica].ports[door], timeout=30, source_address=source)
        try:
            once.request(method, path, body, headers)
            answer = once.getresponse()
            said, status = answer.read(), answer.status
        except (OSError, http.client.HTTPException) as error:
            once.close()
            status = type(error).__name__
        if connection is None:
            once.close()
        if status == 200 and check and not check(said):
            status = "another answer"
        self.record(sent, time.monotonic(), kind, replica, status, right, said)
        return status, said

    def begin(self):
        """Starts everything that asks."""
        self.every("mine", 2, lambda _: self.rpc("evm_mine"), [0])
        for name, pause in (("keyed", 0.03), ("fresh", 0.1), ("http2", 2), ("public", 0.1), ("visited", 0.5), ("limited", 2),
                            ("verify", 0.1), ("signed", 2), ("rotated", 5), ("unknown", 1), ("events", 1), ("bodies", 1),
                            ("upgraded", 2), ("aborted", 0.5), *[("fragile", 1)] * 10):
            self.every(name, pause, getattr(self, f"ask_{name}"), range(3))

    def every(self, name, pause, turn, replicas):
        for replica in replicas:
            self.threads.append(threading.Thread(target=self.turns, args=(name, pause, turn, replica), daemon=True))
            self.threads[-1].start()

    def turns(self, name, pause, turn, replica):
        while not self.over.wait(pause * random.uniform(0.5, 1.5)):
            try:
                turn(replica)
            except Exception as error:  # One that is not expected is a failure like any other.
                self.record(time.monotonic(), time.monotonic(), name, replica, repr(error), ())

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        return self.counts

    def key(self, replica, agent=STEADY):
        return {"X-API-Key": self.keys[agent][replica]}

    def ask_keyed(self, replica):
        """Asks ten times over one connection."""
        connection = http.client.HTTPConnection(self.services[replica].ports["gateway"], timeout=30)
        for _ in range(10):
            self.call("keyed", replica, "gateway", "GET", "/private", {200}, headers=self.key(replica), connection=connection)
            time.sleep(0.05)
        connection.close()

    def ask_fresh(self, replica):
        self.call("fresh", replica, "gateway", "GET", "/private", {200}, headers=self.key(replica) | {"Connection": "close"})

    def ask_http2(self, replica):
        """40 streams over two connections."""
        sent, key = time.monotonic(), self.keys[STEADY][replica]
        url = f"http://{self.services[replica].ports['gateway']}/private"
        done = subprocess.run(["h2load", "-n40", "-c2", "-m5", "-T30", f"-Hx-api-key: {key}", url], capture_output=True, text=True)
        good = int((re.search(r"status codes: (\d+) 2xx", done.stdout) or [0, 0])[1])
        self.counts["http2", 200] += good
        if good < 40:
            self.record(sent, time.monotonic(), "http2", replica, "not 200", (), " ".join(re.findall("^(?:requests|status).*", done.stdout, re.M)).encode())

    def ask_public(self, replica):
        self.call("public", replica, "gateway", "GET", "/public/x", {200})

    def ask_visited(self, replica):
        self.call("visited", replica, "gateway", "GET", "/visited/x", {200, 429}, source=address())

    def ask_limited(self, replica):
        for agent, right in ((LIMITED, {200, 429}), (STEADY, {200})):
            self.call("limited", replica, "gateway", "GET", "/private", right, headers=self.key(replica, agent))

    def ask_verify(self, replica):
        body = json.dumps({"apiKey": self.keys[STEADY][replica]})
        self.call("verify", replica, "api", "POST", "/verify", {200}, body)

    def ask_signed(self, replica):
        """A signature at either listener."""
        self.call("signed", replica, "api", "POST", "/verify/signature", {200}, self.chain.sign(STEADY))
        lines = self.chain.sign(STEADY, "--headers").decode().splitlines()
        self.call("signed", replica, "gateway", "GET", "/private", {200}, headers=dict(line.split(": ") for line in lines))

    def ask_rotated(self, replica):
        """A key is replaced: the old one is refused at once, by the other replica too."""
        if replica == 1:
            return
        old = self.keys[ROTATED][replica]
        status, new = self.rotate(replica, ROTATED)
        others, self.keys[ROTATED][replica] = ((0, 1) if replica == 0 else (2,)), new or old
        if status == 200:
            for other in others:
                for key, right in ((old, {401}), (new, {200})):
                    self.call("rotated", other, "gateway", "GET", "/private", right, headers={"X-API-Key": key})

    def ask_unknown(self, replica):
        key = "svc_live_v1_" + secrets.token_hex(32)
        self.call("unknown", replica, "gateway", "GET", "/private", {401, 429}, headers={"X-API-Key": key}, source=address())

    def ask_events(self, replica):
        """An event stream of ten seconds."""
        self.shaped("events", replica, "/events?count=20&pause=0.5", check=lambda said: said.count(b"event: tick") == 20)

    def ask_bodies(self, replica):
        """256 KiB up, and 1 MB down."""
        self.shaped("bodies", replica, "/echo", body=bytes(1 << 18), check=lambda said: json.loads(said)["bytes"] == 1 << 18)
        self.shaped("bodies", replica, "/bytes?count=1000000", check=lambda said: len(said) == 1_000_000)

    def shaped(self, kind, replica, path, body=None, check=None):
        headers = self.key(replica) | {"Host": "shapes.example"}
        self.call(kind, replica, "gateway", "POST" if body else "GET", path, {200}, body, headers, check=check)

    def ask_upgraded(self, replica):
        """A connection that becomes a WebSocket's, for five seconds."""
        sent, status = time.monotonic(), 101
        try:
            with self.open(replica, "/echo", "echo.example", "Connection: Upgrade\r\nUpgrade: websocket\r\n") as opened:
                head = opened.recv(65_536)
                if b" 101 " not in head:
                    status = head[9:12].decode()
                for _ in range(10 if status == 101 else 0):
                    opened.sendall(b"x" * 1_000)
                    got = 0
                    while got < 1_000:
                        got += len(opened.recv(65_536)) or 1 / 0
                    time.sleep(0.5)
        except (OSError, ZeroDivisionError) as error:
            status = repr(error)
        self.record(sent, time.monotonic(), "upgraded", replica, status, {101})

    def ask_aborted(self, replica):
        """Leaves before the answer, half of the time with a reset."""
        opened = self.open(replica, "/slow?seconds=1", "shapes.example")
        time.sleep(random.uniform(0, 0.2))
        if random.random() < 0.5:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.close()

    def open(self, replica, path, host, more=""):
        """A connection on which a request was sent."""
        where, port = self.services[replica].ports["gateway"].split(":")
        opened = socket.create_connection((where, port), timeout=30)
        more += f"X-API-Key: {self.keys[STEADY][replica]}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        opened.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
        return opened

    def ask_fragile(self, replica):
        self.call("fragile", replica, "gateway", "GET", "/x", {200}, headers=self.key(replica) | {"Host": "fragile.example"})


def address():
    """One of a thousand clients."""
    return f"127.1.{random.randrange(4)}.{random.randrange(1, 251)}"


def probe(ways):
    """Asks each way 20 times a second until it is killed; prints time, duration, way and status of each request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def turns(which, where, key):
        connection = http.client.HTTPConnection(where, timeout=30)
        while True:
            time.sleep(random.uniform(0.025, 0.075))
            sent = time.monotonic()
            try:
                connection.request("GET", "/private", headers={"X-API-Key": key})
                answer = connection.getresponse()
                answer.read()
                status = answer.status
            except (OSError, http.client.HTTPException):
                connection.close()
                status = 0
            # In one piece, for there are several threads.
            os.write(1, f"{sent} {time.monotonic() - sent} {which} {status}\n".encode())

    for which, (where, key) in enumerate(ways):
        threading.Thread(target=turns, args=(which, where, key)).start()
