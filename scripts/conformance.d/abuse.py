"""HTTP/2 clients that mean ill: each is bounded or cut off, other clients are served meanwhile, and memory stays."""

import struct
import threading
import time

from frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Client,
)
from harness import KNOWN, check, equal, holds
from http1 import exchange

BOTH = END_HEADERS | END_STREAM

# How much the process may have grown after an attack, in KiB.
GROWTH_KIB_MAX = 64 * 1024


class Reader(threading.Thread):
    """Reads whatever comes, so that an attack is not slowed by it; keeps the last error."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.end, self.resets, self.answers, self.ended = client, None, 0, 0, False
        client.socket.settimeout(30)
        self.start()

    def run(self):
        try:
            while (frame := self.client.read()).kind is not None:
                if frame.kind == GOAWAY:
                    self.end = frame.error()
                self.resets += frame.kind == RST_STREAM
                self.answers += frame.kind == HEADERS
        except (OSError, TimeoutError):
            pass
        self.ended = True


def attack(name, must_end=True, within=20):
    """A check: the function sends frames on a connection, and gives how many it could send."""

    def register(function):
        @check(f"abuse: {name}")
        def _made(world):
            process = world.clear.process
            memory, cpu, seen = process.resident_kib(), process.cpu_seconds(), len(world.upstream.seen)
            client = Client(world.clear.port)
            reader = Reader(client)
            slowest = Bystander(world)
            begun = time.monotonic()
            sent = function(client)
            end = begun + within
            while must_end and not reader.ended and time.monotonic() < end:
                time.sleep(0.02)
            took = time.monotonic() - begun
            worst = slowest.stop()
            client.close()
            cpu, growth = process.cpu_seconds() - cpu, process.resident_kib() - memory
            outcome = f"{reader.end or 'closed'}" if reader.ended else "still open"
            forwarded = len(world.upstream.seen) - seen - slowest.count
            note = f"{sent} sent, {outcome} after {took:.1f} s, {reader.resets} resets, {reader.answers} answers, "
            note += f"{forwarded} upstream, CPU {cpu:.1f} s, {growth:+} KiB, bystander {worst * 1000:.0f} ms"
            holds(not must_end or reader.ended, f"the connection is not closed: {note}")
            holds(growth < GROWTH_KIB_MAX, f"memory: {note}")
            holds(worst < 5, f"others wait: {note}")
            return note

        return function

    return register


class Bystander(threading.Thread):
    """Another client, whose slowest answer is remembered."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.worst, self.count, self.over, self.problem = world, 0.0, 0, False, None
        self.start()

    def run(self):
        try:
            client = Client(self.world.clear.port, timeout=20)
            # An attack may be over before anybody else was served.
            while not self.over or self.count < 3:
                stream = 2 * self.count + 1
                begun = time.monotonic()
                client.request(stream)
                equal(client.response(stream, 20)[0], 200, "status")
                self.worst = max(self.worst, time.monotonic() - begun)
                self.count += 1
                time.sleep(0.005)
            client.close()
        except (AssertionError, OSError) as error:
            self.problem = error

    def stop(self):
        self.over = True
        self.join(25)
        holds(self.problem is None, f"another client was disturbed: {self.problem}")
        return self.worst


def repeat(client, count, one):
    """Calls `one` with stream numbers until the connection is gone; what can't be sent any more ends it."""
    for number in range(count):
        if not one(2 * number + 1):
            return number
    return count


@attack("rapid reset: 10,000 times HEADERS and RST_STREAM")
def _(client):
    fields = client.head(path="/public/slow?seconds=1")

    def one(stream):
        return client.request(stream, BOTH, fields) and client.frame(RST_STREAM, 0, stream, struct.pack(">I", 8))

    return repeat(client, 10_000, one)


@attack("rapid reset of uploads: 10,000 times HEADERS, DATA and RST_STREAM")
def _(client):
    fields = client.head("POST")

    def one(stream):
        client.request(stream, END_HEADERS, fields)
        client.frame(DATA, 0, stream, b"x")
        return client.frame(RST_STREAM, 0, stream, struct.pack(">I", 8))

    return repeat(client, 10_000, one)


RESETS = {
    "WINDOW_UPDATE of 0": lambda client, stream: client.frame(WINDOW_UPDATE, 0, stream, bytes(4)),
    "a window above 2^31-1": lambda client, stream: client.frame(
        WINDOW_UPDATE, 0, stream, struct.pack(">I", 0x7FFFFFFF)
    ),
    "PRIORITY on itself": lambda client, stream: client.frame(PRIORITY, 0, stream, struct.pack(">IB", stream, 1)),
    "DATA after the end": lambda client, stream: client.frame(DATA, END_STREAM, stream, b"x"),
    "HEADERS after the end": lambda client, stream: client.request(stream),
}

for title, provoke in RESETS.items():

    @attack(f"made you reset: 10,000 times a request and {title}")
    def _(client, provoke=provoke):
        fields = client.head(path="/public/slow?seconds=1")

        def one(stream):
            return client.request(stream, BOTH, fields) and provoke(client, stream)

        return repeat(client, 10_000, one)


@attack("malformed requests: 10,000 times HEADERS with Connection")
def _(client):
    fields = client.head(extra=[("connection", "close")])
    return repeat(client, 10_000, lambda stream: client.request(stream, BOTH, fields))


@attack("a header block without end: 10,000 CONTINUATION frames")
def _(client):
    client.request(1, END_STREAM)
    block = client.block([("x-a", "b" * 1000)])
    return repeat(client, 10_000, lambda _: client.frame(CONTINUATION, 0, 1, block))


@attack("a header block without end: 100,000 empty CONTINUATION frames")
def _(client):
    client.request(1, END_STREAM)
    return repeat(client, 100_000, lambda _: client.frame(CONTINUATION, 0, 1, b""))


@attack("100,000 empty DATA frames", must_end=False)
def _(client):
    client.request(1, END_HEADERS, client.head("POST"))
    return repeat(client, 100_000, lambda _: client.frame(DATA, 0, 1, b""))


@attack("20,000 SETTINGS frames", must_end=False)
def _(client):
    return repeat(
        client, 20_000, lambda number: client.frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535 + number % 2))
    )


@attack("100,000 PING frames", must_end=False)
def _(client):
    return repeat(client, 100_000, lambda _: client.frame(PING, 0, 0, bytes(8)))


@attack("100,000 PRIORITY frames on idle streams", must_end=False)
def _(client):
    return repeat(client, 100_000, lambda stream: client.frame(PRIORITY, 0, stream, struct.pack(">IB", 0, 1)))


@check("abuse: two million PING frames of a client that reads nothing")
def _deaf(world):
    process = world.clear.process
    memory = process.resident_kib()
    client = Client(world.clear.port)
    client.socket.settimeout(3)
    many = (struct.pack(">I", 8)[1:] + bytes([PING, 0]) + bytes(12)) * 1000
    sent = repeat(client, 2_000, lambda _: client.send(many))
    growth = process.resident_kib() - memory
    client.close()
    holds(growth < GROWTH_KIB_MAX, f"{growth} KiB more")
    return f"{sent},000 taken, {growth:+} KiB"


@check("abuse: 128 streams whose answers of 10 MB are asked for and not taken")
def _unread(world):
    process = world.clear.process
    memory = process.resident_kib()
    client = Client(world.clear.port, settings=[(4, 0x7FFFFFFF)])
    client.frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFFFFFF - 65535))
    for at in range(128):
        client.request(2 * at + 1, fields=client.head(path="/public/bytes?count=10000000"))
    time.sleep(2)
    growth = process.resident_kib() - memory
    client.close()
    holds(growth < 2 * GROWTH_KIB_MAX, f"{growth} KiB more")
    return f"{growth:+} KiB"


@check("abuse: 128 streams with windows of 0")
def _windows(world):
    process = world.clear.process
    memory = process.resident_kib()
    client = Client(world.clear.port, settings=[(4, 0)])
    for at in range(128):
        client.request(2 * at + 1, fields=client.head(path="/public/bytes?count=10000000"))
    time.sleep(2)
    growth = process.resident_kib() - memory
    client.close()
    holds(growth < 2 * GROWTH_KIB_MAX, f"{growth} KiB more")
    return f"{growth:+} KiB"


@check("abuse: headers of 64 KiB are refused, and the next request is answered")
def _large_head(world):
    client = Client(world.clear.port)
    block = client.block(client.head(extra=[(f"x-{at}", "y" * 1000) for at in range(64)]))
    client.frame(HEADERS, END_STREAM, 1, block[:16000])
    for at in range(16000, len(block), 16000):
        client.frame(CONTINUATION, END_HEADERS if at + 16000 >= len(block) else 0, 1, block[at : at + 16000])
    kind, code = client.outcome(1)
    holds((kind, code) == ("status", "431") or kind in ("connection", "stream", "closed"), f"{kind} {code}")
    if kind in ("status", "stream"):
        client.request(3)
        equal(client.response(3)[0], 200, "status of the next")
    client.close()
    return f"{kind} {code or ''}"


@check("abuse: an HPACK bomb, one large entry named 4,000 times, is refused")
def _bomb(world):
    memory = world.clear.process.resident_kib()
    client = Client(world.clear.port)
    block = client.encoder.encode([*client.head(), ("x-bomb", "y" * 3900)])
    client.frame(HEADERS, END_STREAM, 1, block + b"\xbe" * 4000)
    client.frame(CONTINUATION, END_HEADERS, 1, b"")
    kind, code = client.outcome(1)
    client.close()
    holds((kind, code) == ("status", "431") or kind in ("connection", "stream", "closed"), f"{kind} {code}")
    return f"{kind} {code or ''}, {world.clear.process.resident_kib() - memory:+} KiB"


ALIKE = "abuse: more than 128 headers are answered or refused alike over both versions"


@check(ALIKE)
def _many_headers(world):
    statuses = []
    for version in ("--http1.1", "--http2-prior-knowledge"):
        headers = [option for at in range(150) for option in ("-H", f"x-{at}: 1")]
        _, out, _ = world.clear.curl("/public/echo", version, *headers, "-o", "/dev/null", "-w", "%{http_code}")
        statuses.append(out)
    equal(statuses[0], statuses[1], "the status over HTTP/1.1 and HTTP/2")
    return statuses[0]


@check("abuse: CONNECT is refused with 405, plain, extended and over HTTP/1.1")
def _connect(world):
    client = Client(world.clear.port)
    client.request(1, fields=[(":method", "CONNECT"), (":authority", "http.example:80")])
    plain = client.outcome(1)
    client.request(3, fields=[(":method", "CONNECT"), (":protocol", "websocket"), *client.head()[1:]])
    extended = client.outcome(3)
    client.close()
    old = exchange(
        world.clear,
        b"CONNECT http.example:80 HTTP/1.1\r\nHost: http.example:80\r\nConnection: close\r\n\r\n",
        until_close=True,
    )
    holds(old.split()[1] in (b"400", b"405"), old[:60])
    holds(plain in (("status", "405"), ("status", "400")) or plain[0] == "stream", str(plain))
    holds(extended[0] in ("stream", "connection", "closed") or extended[1] in ("400", "405"), str(extended))
    return f"{plain[1]}, {extended[1]}, {old.split()[1].decode()}"


@check("abuse: what a reset request leaves behind is not answered to the next")
def _no_mixing(world):
    client = Client(world.clear.port)
    for number in range(200):
        stream = 4 * number + 1
        client.request(stream, fields=client.head(path=f"/public/echo?dropped={number}"))
        client.frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
        client.request(stream + 2, fields=client.head(path=f"/public/echo?kept={number}"))
        body = client.response(stream + 2)[2]
        holds(f"kept={number}".encode() in body, f"{number}: {body[:80]}")
    client.close()


@check("abuse: after all of it, a request is answered and the process is as large as a service")
def _after(world):
    _, out, err = world.clear.curl("/public/echo", "-o", "/dev/null", "-w", "%{http_code}")
    equal(out, "200", f"status ({err})")
    _, out, err = world.clear.curl(
        "/private", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"X-API-Key: {world.clear.key}"
    )
    equal(out, "200", f"status of an agent ({err})")
    return f"{world.clear.process.resident_kib() // 1024} MiB resident"
