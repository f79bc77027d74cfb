"""Processes for measuring: Redis, the development chain, replicas of the service. All end with this program."""

import atexit
import json
import os
import re
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

REDIS_SERVER = os.environ.get("TG_REDIS_SERVER", "redis-server")

children = []


@atexit.register
def end_all():
    for child in children:
        child.kill()
    for child in children:
        child.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, condition, seconds=30):
    """Waits for a condition; what an OSError says counts as not yet."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            seen = condition()
        except OSError:
            seen = None
        if seen:
            return seen
        time.sleep(0.01)
    raise SystemExit(f"not within {seconds} s: {what}")


def start(log, *command):
    child = subprocess.Popen(command, stdout=open(log, "ab"), stderr=subprocess.STDOUT, start_new_session=True)
    children.append(child)
    return child


class Redis:
    """A server with a folder of its own."""

    def __init__(self, folder, *arguments):
        self.folder, self.port, self.arguments = folder, free_port(), arguments
        os.makedirs(folder)
        self.start()

    def start(self):
        common = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.folder, "--save", ""]
        self.process = start(f"{self.folder}/log", REDIS_SERVER, *self.first(), *common, *self.arguments)
        until("Redis answers", lambda: self.command("PING") == "PONG")

    def first(self):
        return []

    def command(self, *words):
        done = subprocess.run(
            ["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), *words], capture_output=True, text=True
        )
        return done.stdout.strip()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Sentinel(Redis):
    """Watches a master as "service", and decides alone."""

    def __init__(self, folder, master):
        self.master = master
        super().__init__(folder, "--sentinel")

    def first(self):
        file = f"{self.folder}/sentinel.conf"
        with open(file, "w") as out:
            out.write(f"sentinel monitor service 127.0.0.1 {self.master.port} 1\n")
            out.write("sentinel down-after-milliseconds service 500\nsentinel failover-timeout service 3000\n")
        return [file]


class Chain:
    """The development chain with its sample agents and an upstream."""

    def __init__(self, program, work):
        self.program = program
        ports = {name: f"127.0.0.1:{free_port()}" for name in ("api", "gateway", "upstream", "admin", "chain")}
        self.ports = ports
        arguments = [word for name, address in ports.items() for word in (f"--{name}", address)]
        self.process = start(f"{work}/dev", f"{program}-dev", *arguments)
        said = until("the development chain runs", lambda: re.search(r"^  config +(\S+)$", read(f"{work}/dev"), re.M))
        until("it is complete", lambda: "Ctrl-C" in read(f"{work}/dev"))
        self.config = said.group(1)
        self.folder = os.path.dirname(self.config)

    def sign(self, agent, *more):
        command = [self.program, "sign", "--agent-id", str(agent), "--config", self.config]
        command += ["--owner-key-file", f"{self.folder}/agent-{agent}.key", *more]
        return subprocess.run(command, capture_output=True, check=True).stdout


class Service:
    """A replica with a gateway for one tenant, or for those that are given as TOML."""

    def __init__(self, chain, folder, store, tiers, tenants=""):
        self.ports = {name: f"127.0.0.1:{free_port()}" for name in ("api", "admin", "gateway")}
        os.makedirs(folder)
        text = read(chain.config)
        for name, address in self.ports.items():
            text = text.replace(chain.ports[name], address)
        text = re.sub(r"^\[store\.embedded\][^\[]*", lambda _: f"[store]\n{store}\n\n", text, count=1, flags=re.M)
        # A new Redis refuses signatures for max_ahead; what asks whether that is over must not run into a limit.
        text += "\n[keys]\nrequests_per_hour = 1000000\n\n[abuse]\nfailures_per_minute = 0\n"
        text += f"\n[signature]\nmax_ahead = \"1s\"\n\n[tiers]\nrequests_per_minute = {tiers}\n"
        text += tenants or f'\n[[tenants]]\nid = "measured"\nhosts = ["*"]\nupstreams = ["{chain.ports["upstream"]}"]\n'
        with open(f"{folder}/tiergate.toml", "w") as out:
            out.write(text)
        self.scheme = "https" if "[listen.tls]" in text else "http"
        self.log = f"{folder}/log"
        self.process = start(self.log, chain.program, "run", "--config", f"{folder}/tiergate.toml")
        until(f"the service is ready, see {self.log}", self.is_ready)

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit(read(self.log))
        return self.ask("/readyz")[0] == 200

    def ask(self, path, body=None, method=None):
        return ask(f"{self.scheme}://{self.ports['api']}{path}", body, method)

    def post(self, path, body, method="POST"):
        return self.ask(path, body, method)


def read(path):
    with open(path) as text:
        return text.read()


def ask(url, body=None, method=None):
    """Status and JSON body."""
    request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": "application/json"})
    try:
        # A certificate here was made a moment ago and is nobody's.
        with urllib.request.urlopen(request, timeout=30, context=ssl._create_unverified_context()) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
