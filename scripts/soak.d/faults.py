"""The faults of `scripts/soak`: what each does, for how long, who may fail meanwhile, and which alerts have to fire."""

import signal
import socket
import time
from dataclasses import dataclass

from load import DEPLOYER, SOLD
from rig import read, until

# Who may fail: by the kind of the request and the replica, of which the first two are at Redis.
NOBODY = lambda kind, replica: False
REDIS = lambda kind, replica: replica < 2 and kind != "public"
AGENTS = lambda kind, replica: kind not in ("public", "visited")
FRAGILE = lambda kind, replica: kind == "fragile"


@dataclass
class Fault:
    """A fault that was; times are those of the monotonic clock."""

    name: str
    excuses: object
    alerts: tuple
    begun: float
    ended: float


def a_tenant_comes_and_goes(place, seconds):
    place.put("new", f'id = "new"\nhosts = ["new.example"]\nupstreams = ["127.0.0.1:{place.steady}"]\nmin_tier = 2\n')
    until("the tenant is there", lambda: set(place.statuses("new.example", "/")) == {401})
    time.sleep(seconds)
    place.put("new", None)
    # Those of other tenants' hosts are the steady tenant's, which has this path.
    until("the tenant is gone", lambda: set(place.statuses("new.example", "/public/x")) == {200})


def a_broken_configuration(place, seconds):
    place.put("broken", 'id = "broken"\nhosts = ["*"]\nupstreams = []\n')
    time.sleep(seconds)
    place.put("broken", None)


def a_change_that_needs_a_restart(place, _seconds):
    path = f"{place.folder}/service-1/tiergate.toml"
    text = read(path)
    with open(path, "w") as out:
        out.write(text.replace("requests_per_hour = 1000000", "requests_per_hour = 999999"))


def keys_are_guessed_from_now_on(place, _seconds):
    place.every("unknown", 0.4, place.ask_unknown, range(3))


def redis_is_frozen(place, seconds):
    frozen(place.redis.process, seconds)


def redis_is_killed(place, seconds):
    place.redis.kill()
    time.sleep(seconds)
    place.redis.start()


def redis_stalls(place, seconds):
    stutter(place.redis.process, 0.1, seconds)


def the_node_hangs(place, seconds):
    frozen(place.chain.process, seconds)


def the_node_stalls(place, seconds):
    stutter(place.chain.process, 0.5, seconds)


def one_upstream_is_killed(place, seconds, count=1):
    ports = list(place.fragile)[:count]
    for port in ports:
        place.fragile[port].kill()
        place.fragile[port].wait()
    time.sleep(seconds)
    for port in ports:
        place.fragile[port] = place.start_upstream(port)


def both_upstreams_are_killed(place, seconds):
    one_upstream_is_killed(place, seconds, 2)


def upstreams_stall(place, seconds):
    stutter(list(place.fragile.values()), 1.5, seconds)


def connections_flood(place, seconds):
    """1,000 connections from one address to each replica, which never finish a request, again and again."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        opened = []
        for service in place.services:
            where, port = service.ports["gateway"].split(":")
            for _ in range(1_000):
                opened.append(socket.create_connection((where, port), source_address=("127.0.0.66", 0)))
                try:
                    opened[-1].sendall(b"GET /")
                except OSError:
                    pass
        time.sleep(min(10, seconds))
        for connection in opened:
            connection.close()


def an_agent_is_sold_and_bought_back(place, seconds):
    owner = place.owner(SOLD)
    place.transfer(SOLD, owner, DEPLOYER)
    until("all replicas see the new owner", lambda: place.owners(SOLD) == {DEPLOYER})
    time.sleep(seconds)
    place.transfer(SOLD, DEPLOYER, owner)
    until("all replicas see the former owner again", lambda: place.owners(SOLD) == {owner})


def a_spare_replica_is_killed(place, _seconds):
    place.spare.process.kill()


# From so long a run on, faults last as long as below, in seconds, and alerts have to fire.
WHOLE = 1_500
PLAN = [
    (a_tenant_comes_and_goes, 30, NOBODY, ()),
    (keys_are_guessed_from_now_on, 0, NOBODY, ("TiergateCredentialsRefused",)),
    (a_change_that_needs_a_restart, 0, NOBODY, ("TiergateConfigNeedsRestart",)),
    # A node that is alone and takes connections does not count as unhealthy: TiergateRpcNodeUnhealthy stays quiet.
    (the_node_hangs, 450, AGENTS, ("TiergateNotFollowing", "TiergateRpcErrors", "TiergateHeadStandsStill", "TiergateNotReady",
                                   "TiergateGatewayErrors", "TiergateApiErrors", "TiergateErrorBudgetBurnsFast")),
    (one_upstream_is_killed, 60, FRAGILE, ()),
    (a_broken_configuration, 90, NOBODY, ("TiergateConfigRefused",)),
    (redis_is_frozen, 90, REDIS, ("TiergateStoreFaults", "TiergateRedisGivenUp", "TiergateNotReady", "TiergateGatewayErrors", "TiergateApiErrors")),
    (connections_flood, 40, NOBODY, ("TiergateConnectionsTurnedAway",)),
    (both_upstreams_are_killed, 90, FRAGILE, ("TiergateUpstreamErrors", "TiergateTenantErrors")),
    (an_agent_is_sold_and_bought_back, 10, NOBODY, ()),
    (redis_is_killed, 90, REDIS, ("TiergateStoreFaults", "TiergateRedisGivenUp", "TiergateNotReady")),
    (a_spare_replica_is_killed, 0, NOBODY, ("TiergateReplicaDown",)),
    (upstreams_stall, 60, FRAGILE, ()),
    (the_node_stalls, 60, NOBODY, ()),
    (redis_stalls, 30, REDIS, ()),
]


def run(place, seconds):
    """One fault after the other with equal pauses between; returns when each was."""
    scale, done = min(1, seconds / WHOLE), []
    pause = (seconds - scale * sum(lasts for _, lasts, _, _ in PLAN)) / (len(PLAN) + 1)
    first = time.monotonic()
    for fault, lasts, excuses, alerts in PLAN:
        time.sleep(pause)
        name, begun = fault.__name__.replace("_", " "), time.monotonic()
        fault(place, lasts * scale)
        done.append(Fault(name, excuses, alerts, begun, time.monotonic()))
        failed = sum(sent >= begun for sent, *_ in place.failed)
        print(f"{(begun - first) / 60:.1f} min: {name}, {done[-1].ended - begun:.0f} s, {failed} requests failed", flush=True)
    time.sleep(pause)
    return done


def frozen(process, seconds):
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)


def stutter(processes, stop, seconds):
    """Stops processes again and again for so long, with as long between."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in processes if isinstance(processes, list) else [processes]:
                process.send_signal(number)
            time.sleep(stop)
