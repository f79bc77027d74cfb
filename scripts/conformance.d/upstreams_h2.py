"""An upstream that speaks HTTP/2: trailers both ways, versions that differ, and its failures."""

import json
import os

from frames import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Client
from harness import KNOWN, check, equal, holds
from http1 import has_trailer, is_cut_off, seen_by

HOST = "h2c.example"


def with_trailers(world, trailers):
    """A request with a body and trailers; gives what the upstream saw, and the answer's trailers."""
    client = Client(world.clear.port)
    client.request(1, END_HEADERS, client.head("POST", "/public/echo", host=HOST))
    client.frame(DATA, 0, 1, b"hello")
    client.frame(HEADERS, END_HEADERS | END_STREAM, 1, client.block(trailers))
    body, heads = b"", []
    while True:
        frame = client.read()
        if frame.kind in (None, RST_STREAM):
            raise AssertionError(f"no answer: {frame.kind}")
        if frame.kind == HEADERS:
            heads.append(dict(client.decoder.decode(frame.payload)))
        if frame.kind == DATA:
            body += frame.payload
        if frame.kind in (HEADERS, DATA) and frame.flags & END_STREAM:
            client.close()
            return json.loads(body), heads[-1]


# threat: Forged identity or forwarding headers
@check("h2c upstream: forged identity in a request's trailers does not get through")
def _forged(world):
    forged = [("x-agent-id", "9"), ("x_agent_tier", "9"), ("x-api-key", world.clear.key), ("x-note", "1")]
    seen, _ = with_trailers(world, forged)
    names = [name.replace("_", "-") for name, _ in seen["trailers"]]
    holds(not any(name.startswith("x-agent") for name in names), f"trailers {seen['trailers']}")
    holds(world.clear.key not in str(seen), "the key came through")
    return f"the upstream saw {seen['trailers']}"


# threat: An upstream's own limit headers
@check("h2c upstream: an answer's trailers are passed on, but none about limits")
def _trailers(world):
    _, trailers = with_trailers(world, [("x-note", "1")])
    equal(trailers, {"x-sum": "5"}, "trailers")


DOWN = "h2c upstream: an answer's trailers are passed on over HTTP/1.1"
KNOWN[DOWN] = (
    "the proxy library writes no trailers over HTTP/1.1, as RFC 9110, section 6.5.1, allows",
    "a whole answer without the trailer",
)


@check(DOWN)
def _down(world):
    _, out, err = world.clear.curl("/public/echo", "--http1.1", "-D", "-", "-H", "TE: trailers", host=HOST)
    has_trailer(out + err, "/public/echo", "x-sum: 5")


@check("h2c upstream: HTTP/1.1 requests with bodies arrive whole")
def _bodies(world):
    for options in ([], ["-H", "Transfer-Encoding: chunked"]):
        _, out, err = world.clear.curl("/public/echo", "--http1.1", *options, "-d", "x" * 100_000, host=HOST)
        equal(json.loads(out)["bytes"], 100_000, f"body length ({err})")


@check("h2c upstream: what is hop-by-hop in HTTP/1.1 stays behind, forged identity too")
def _hops(world):
    options = ["-H", "Connection: keep-alive, x-hop", "-H", "X-Hop: 1", "-H", "Keep-Alive: 5", "-H", "X_Agent_Id: 9"]
    _, out, err = world.clear.curl("/public/echo", "--http1.1", *options, host=HOST)
    names = {name for name, _ in json.loads(out)["headers"]}
    holds(not names & {"connection", "keep-alive", "x-hop", "x_agent_id"}, f"{names} {err}")


@check("h2c upstream: an upstream that resets or goes away is a 502, and the next request is answered")
def _faults(world):
    for path in ("/public/reset", "/public/goaway"):
        for version in ("--http1.1", "--http2-prior-knowledge"):
            _, out, _ = world.clear.curl(path, version, "-w", "%{http_code}", host=HOST)
            holds(out.endswith("502") and "UPSTREAM_ERROR" in out, f"{path}: {out}")
    _, out, err = world.clear.curl("/public/echo", host=HOST)
    equal(dict(seen_by(out + err)["headers"])[":path"], "/public/echo", "the next at the upstream")


@check("curl: a steady upload to an h2c upstream may take longer than the time limit of reads")
def _slowly(world):
    upload_slowly(world, HOST)


@check("curl: a steady upload may take longer than the time limit of reads")
def _slowly_http1(world):
    upload_slowly(world, "http.example")


def upload_slowly(world, host):
    """Ten seconds of an upload to a tenant whose upstreams may be silent for five."""
    body = os.path.join(world.folder, "slowly")
    with open(body, "wb") as file:
        file.write(bytes(160_000))
    for version in ("--http1.1", "--http2-prior-knowledge"):
        _, out, err = world.clear.curl("/public/echo", version, "-s", "--limit-rate", "16k", "-T", body, host=host)
        equal(seen_by(out + err)["bytes"], 160_000, f"body length ({version})")


@check("h2c upstream: an answer that breaks off is seen to break off")
def _half(world):
    for version in ("--http1.1", "--http2-prior-knowledge"):
        is_cut_off(*world.clear.curl("/public/half", version, "-w", "%{http_code}", host=HOST)[:2], "half")
