"""Faults of Redis under load: no answer is ever wrong, and how long each of them lasts."""

import http.client
import json
import os
import signal
import statistics
import sys
import threading
import time

from rig import Chain, Redis, Sentinel, Service, until

# How long a fault lasts, and how long the load runs before it and after it is over, in seconds.
FAULT, QUIET = 3.0, 1.0
# Requests a minute of the agent whose window is watched.
LIMIT = 166
WINDOW = 60.0
# What each key may get at any time, by the sample agent that has it.
RIGHT = {"good": {200}, "limited": {200, 429}, "revoked": {401}, "replaced": {401}}
AGENTS = {"revoked": 1, "replaced": 2, "limited": 3, "good": 4}


class Load:
    """Asks both replicas at both doors with every key, all the time, and writes down what came of it."""

    def __init__(self, services, keys):
        self.services, self.keys = services, keys
        self.rows, self.ready, self.wrong = [], [], []
        # After a restart without data no key counts any more.
        self.empty = False
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.ask_api, args=(service,)) for service in services * 2]
        self.threads += [threading.Thread(target=self.ask_gateway, args=(service,)) for service in services]
        self.threads += [threading.Thread(target=self.watch, args=(services[0],))]
        for thread in self.threads:
            thread.start()

    def ask_api(self, service):
        self.ask(service, "api", lambda key: ("POST", "/verify", json.dumps({"apiKey": key}), {}))

    def ask_gateway(self, service):
        self.ask(service, "gateway", lambda key: ("GET", "/x", None, {"X-API-Key": key}))

    def ask(self, service, door, request):
        connection = http.client.HTTPConnection(service.ports[door], timeout=30)
        while not self.over.is_set():
            for state, key in self.keys.items():
                method, path, body, headers = request(key)
                sent = time.monotonic()
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                text = answer.read()
                self.rows.append((sent, time.monotonic(), state, answer.status, door))
                self.judge(state, answer.status, text)
            self.over.wait(0.005)

    def judge(self, state, status, text):
        if status == 500:
            error = json.loads(text)
            if error.get("errorType") != "INTERNAL_ERROR" or "details" in error:
                self.wrong.append(f"another 500: {text}")
        elif status not in RIGHT[state] and not (self.empty and status == 401):
            self.wrong.append(f"{state}: {status} {text}")

    def watch(self, service):
        connection = http.client.HTTPConnection(service.ports["api"], timeout=30)
        while not self.over.is_set():
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            answer.read()
            self.ready.append((time.monotonic(), answer.status))
            self.over.wait(0.02)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def over_the_limit(rows):
    """Whether more than the limit passed within one window: sent and answered within less than one."""
    # The API and the tenant have a window each.
    for door in ("api", "gateway"):
        passed = [row for row in rows if row[2:] == ("limited", 200, door)]
        sent, got = sorted(row[0] for row in passed), sorted(row[1] for row in passed)
        if any(got[place + LIMIT] - sent[place] < WINDOW for place in range(len(passed) - LIMIT)):
            return True
    return False


def shown(seconds):
    return "none" if seconds is None else f"{seconds * 1000:.0f} ms"


def first(times):
    return min(times, default=None)


def since(begun, moment):
    return None if moment is None else moment - begun


def report(name, load, begun, ended):
    good = [row for row in load.rows if row[2] == "good"]
    failed = [(sent, got) for sent, got, _, status, _ in good if status == 500]
    error = first(got for sent, got in failed if got >= begun)
    broken = [got - sent for sent, got in failed]
    passed = [got for sent, got, _, status, _ in good if status == 200 and sent >= ended]
    unready = first(at for at, status in load.ready if at >= begun and status == 503)
    # In an empty Redis no key is good any more.
    recovered = since(ended, first(passed))
    last = max((got for _, got in failed if got >= ended), default=None)
    again = first(at for at, status in load.ready if unready and at > max(ended, unready) and status == 200)
    cost = f"median {shown(statistics.median(broken))}, longest {shown(max(broken))}" if broken else "none"
    print(
        f"{name}: first 500 after {shown(since(begun, error))}; {len(failed)} of {len(good)} requests failed, {cost};"
        f" unready after {shown(since(begun, unready))}, ready again {shown(since(ended, again))} after the end;"
        f" passes again {shown(recovered)} after the end, the last 500 {shown(since(ended, last))}",
        flush=True,
    )


def with_keys(services, chain):
    """One agent for each state of a key."""
    keys = {}
    for state, agent in AGENTS.items():
        made = until("a signature counts", lambda: keyed(services[0].post("/keys/rotate", chain.sign(agent))))
        keys[state] = made
    assert services[0].post("/keys", chain.sign(AGENTS["revoked"]), "DELETE")[0] == 200
    assert services[0].post("/keys/rotate", chain.sign(AGENTS["replaced"]))[0] == 200
    return keys


def keyed(answer):
    status, body = answer
    return body["apiKey"] if status == 200 else None


def killed(place):
    place.redis.kill()
    yield
    place.redis.start()


def frozen(place):
    place.redis.signal(signal.SIGSTOP)
    yield
    place.redis.signal(signal.SIGCONT)


def slowed(place):
    # Each pause is shorter than a request may take: answers are late, not missing.
    until_moment = time.monotonic() + FAULT
    while time.monotonic() < until_moment:
        place.redis.command("DEBUG", "SLEEP", "0.1")
    yield


def stalled(place):
    place.redis.command("DEBUG", "SLEEP", "2")
    yield


def filled(place):
    place.redis.command("CONFIG", "SET", "maxmemory", "1")
    yield
    place.redis.command("CONFIG", "SET", "maxmemory", "0")


def read_only(place):
    place.redis.command("REPLICAOF", "127.0.0.1", "1")
    yield
    place.redis.command("REPLICAOF", "NO", "ONE")


def failed_over(place):
    place.redis.kill()
    yield


def emptied(place):
    place.redis.kill()
    yield
    place.empty()
    place.redis.start()


FAULTS = [killed, frozen, slowed, stalled, filled, read_only, emptied, failed_over]


class Place:
    """A Redis, alone or with a replica and a Sentinel, and two replicas of the service at it."""

    def __init__(self, chain, folder, has_sentinel):
        os.makedirs(folder)
        debug = [] if "6.2" in os.environ.get("TG_REDIS_SERVER", "") else ["--enable-debug-command", "yes"]
        self.redis = Redis(f"{folder}/redis", "--appendonly", "yes", "--appendfsync", "always", *debug)
        url = f"redis://127.0.0.1:{self.redis.port}"
        if has_sentinel:
            follows = ["--replicaof", "127.0.0.1", str(self.redis.port), "--repl-diskless-sync-delay", "0"]
            self.replica = Redis(f"{folder}/replica", *follows)
            until("the replica is in step", lambda: "link_status:up" in self.replica.command("INFO", "REPLICATION"))
            self.sentinel = Sentinel(f"{folder}/sentinel", self.redis)
            url = f"redis-sentinel://127.0.0.1:{self.sentinel.port}/service"
            sees = lambda: "slave0" in self.redis.command("INFO", "REPLICATION") and self.sentinel.command(
                "SENTINEL", "REPLICAS", "service"
            )
            until("the Sentinel knows the replica", sees)
        store = f'kind = "redis"\n[store.redis]\nurl = "{url}"\nwait_replicas = {int(has_sentinel)}'
        tiers = [1, 16, LIMIT, 1_000_000]
        self.services = [Service(chain, f"{folder}/service-{number}", store, tiers) for number in (1, 2)]
        self.keys = with_keys(self.services, chain)

    def empty(self):
        for folder, _, files in os.walk(self.redis.folder):
            for name in files:
                if "appendonly" in name:
                    os.remove(os.path.join(folder, name))


def run(fault, place):
    load = Load(place.services, place.keys)
    time.sleep(QUIET)
    load.empty = fault is emptied
    begun = time.monotonic()
    steps = fault(place)
    next(steps)
    remaining = FAULT - (time.monotonic() - begun)
    if fault not in (slowed, stalled, failed_over) and remaining > 0:
        time.sleep(remaining)
    ended = time.monotonic()
    next(steps, None)
    if fault is failed_over:
        ended = begun
    time.sleep(QUIET + 2 * FAULT if fault is failed_over else QUIET + FAULT)
    load.end()
    report(fault.__name__.replace("_", " "), load, begun, ended)
    if load.wrong:
        raise SystemExit(f"{len(load.wrong)} wrong answers, such as: {load.wrong[0]}")
    # A failover may give places of the window again that the promoted replica had not seen.
    if fault is not failed_over and over_the_limit(load.rows):
        raise SystemExit("more passed in a window than its limit")
    states = {state for _, _, state, *_ in load.rows}
    assert states == set(RIGHT) and any(row[3] == 200 for row in load.rows), "the load asked for nothing"
    if fault is not emptied:
        assert any(row[2] == "good" and row[3] == 200 and row[0] > ended for row in load.rows), "it did not recover"
    return load.rows


def main():
    program, work, *names = sys.argv[1:]
    known = {fault.__name__: fault for fault in FAULTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no such fault: {unknown[0]}; there are {', '.join(known)}")
    chain = Chain(program, work)
    place, rows = None, []
    for fault in FAULTS:
        if names and fault.__name__ not in names:
            continue
        if place is None or fault is failed_over:
            place, rows = Place(chain, f"{work}/{fault.__name__}", fault is failed_over), []
        rows += run(fault, place)
        if fault is not failed_over and over_the_limit(rows):
            raise SystemExit("more passed in a window than its limit")


main()
