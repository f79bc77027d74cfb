"""HTTP/2 clients that mean ill: each is bounded or cut off, and other clients are served meanwhile."""

import struct
import threading
import time

from frames import (
    ACK,
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
from harness import check, equal, holds, seconds, until
from http1 import exchange, seen_by

BOTH = END_HEADERS | END_STREAM
CANCEL = struct.pack(">I", 8)

# The gateway's own limits.
STREAMS_MAX = 128
RESETS_MAX = 64
HEAD_BYTES_MAX = 32 * 1024
STREAM_WINDOW_BYTES = 256 * 1024
CONNECTION_WINDOW_BYTES = 1024 * 1024

# How much of an answer that its client does not read may be under way: in the gateway, and in the system's buffers on
# both sides of it.
UNREAD_BYTES_MAX = 2 * 1024 * 1024


class Reader(threading.Thread):
    """Reads whatever comes, so that an attack is not slowed by it; counts what was answered and keeps the last error.
    `ended` is set by the end of the connection, never by silence."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.end, self.resets, self.acknowledged, self.ended = client, None, 0, 0, False
        client.socket.settimeout(seconds(60))
        self.start()

    def run(self):
        try:
            while (frame := self.client.read()).kind is not None:
                if frame.kind == GOAWAY:
                    self.end = frame.error()
                self.resets += frame.kind == RST_STREAM
                self.acknowledged += frame.kind in (PING, SETTINGS) and frame.flags & ACK
            self.ended = True
        except OSError:
            # Silence, or closed by the check itself.
            pass


def attack(name, code="ENHANCE_YOUR_CALM", answered=None):
    """A check: the function sends frames on a connection, and gives how many it could send. The connection must end,
    with this code where the client still reads one; or stay open with so many frames `answered`."""

    def register(function):
        # threat: HTTP/2 abuse
        @check(f"abuse: {name}")
        def _made(world):
            process = world.clear.process
            cpu, seen = process.cpu_seconds(), len(world.upstream.seen)
            client = Client(world.clear.port)
            reader = Reader(client)
            bystander = Bystander(world)
            sent = function(client)
            try:
                if answered:
                    until("each is acknowledged", lambda: reader.ended or reader.acknowledged >= answered)
                else:
                    # Before the gateway's own limit for idle connections.
                    until("the connection ends", lambda: reader.ended, 20)
            finally:
                bystander.stop()
            ended = reader.ended
            client.close()
            forwarded = len(world.upstream.seen) - seen - bystander.count
            cpu = process.cpu_seconds() - cpu
            note = f"{sent} sent, {reader.end or ('closed' if ended else 'still open')}, {reader.resets} resets, "
            note += f"{forwarded} upstream, {bystander.count} of a bystander, CPU {cpu:.1f} s"
            holds(reader.end in (None, code), note)
            if answered:
                equal((ended, sent, reader.acknowledged), (False, answered, answered), f"ended, sent, acknowledged ({note})")
            return note

        return function

    return register


class Bystander(threading.Thread):
    """Another client, each of whose requests is answered."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.count, self.over, self.problem = world, 0, False, None
        self.start()

    def run(self):
        try:
            client = Client(self.world.clear.port, timeout=60)
            # An attack may be over before anybody else was served.
            while not self.over or self.count < 3:
                stream = 2 * self.count + 1
                client.request(stream)
                equal(client.response(stream, 60)[0], 200, "status")
                self.count += 1
            client.close()
        except (AssertionError, OSError) as error:
            self.problem = error

    def stop(self):
        self.over = True
        self.join(seconds(90))
        holds(self.problem is None and not self.is_alive(), f"another client was disturbed: {self.problem}")


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
        return client.request(stream, BOTH, fields) and client.frame(RST_STREAM, 0, stream, CANCEL)

    return repeat(client, 10_000, one)


@attack("rapid reset of uploads: 10,000 times HEADERS, DATA and RST_STREAM")
def _(client):
    fields = client.head("POST")

    def one(stream):
        client.request(stream, END_HEADERS, fields)
        client.frame(DATA, 0, stream, b"x")
        return client.frame(RST_STREAM, 0, stream, CANCEL)

    return repeat(client, 10_000, one)


# These are errors of the whole connection to the HTTP/2 library.
CONNECTION_ERRORS = ("WINDOW_UPDATE of 0", "DATA after the end", "HEADERS after the end")
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

    @attack(
        f"made you reset: 10,000 times a request and {title}",
        "PROTOCOL_ERROR" if title in CONNECTION_ERRORS else "ENHANCE_YOUR_CALM",
    )
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


@attack("100,000 empty DATA frames")
def _(client):
    client.request(1, END_HEADERS, client.head("POST"))
    return repeat(client, 100_000, lambda _: client.frame(DATA, 0, 1, b""))


@attack("20,000 SETTINGS frames are each acknowledged", answered=20_000)
def _(client):
    return repeat(
        client, 20_000, lambda number: client.frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535 + number % 2))
    )


@attack("100,000 PING frames are each acknowledged", answered=100_000)
def _(client):
    return repeat(client, 100_000, lambda _: client.frame(PING, 0, 0, bytes(8)))


@attack("100,000 PRIORITY frames on idle streams are passed over", answered=1)
def _(client):
    repeat(client, 100_000, lambda stream: client.frame(PRIORITY, 0, stream, struct.pack(">IB", 0, 1)))
    return int(client.frame(PING, 0, 0, bytes(8)))


@check("abuse: of two million PING frames of a client that reads no answers, the gateway does not read all")
def _deaf(world):
    client = Client(world.clear.port)
    holds(client.is_usable(), "the connection has ended")
    client.socket.settimeout(seconds(5))
    many = (struct.pack(">I", 8)[1:] + bytes([PING, 0]) + bytes(12)) * 1000
    bystander = Bystander(world)
    sent = repeat(client, 2_000, lambda _: client.send(many))
    bystander.stop()
    client.close()
    holds(sent < 2_000, "all were read")
    return f"{sent},000 taken"


for title, window in (("does not read", 0x7FFFFFFF), ("has no window for", 0)):

    @check(f"abuse: 128 answers of 10 MB that the client {title} stay with the upstream")
    def _unread(world, window=window):
        client = Client(world.clear.port, settings=[(4, window)])
        client.frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFFFFFF - 65535))
        before, held, looks = world.upstream.sent, 0, 0
        for at in range(STREAMS_MAX):
            client.request(2 * at + 1, fields=client.head(path="/public/bytes?count=10000000"))
        until("something is under way", lambda: world.upstream.sent > before)
        # It stands still when many looks in a row see the same number.
        while looks < 250:
            now = world.upstream.sent - before
            held, looks = now, looks + 1 if now == held else 0
            time.sleep(0.02)
        client.close()
        equal(held <= STREAMS_MAX * UNREAD_BYTES_MAX, True, f"{held:,} bytes under way: within the limit")
        return f"{held // 1024 // 1024} MiB under way, in the systems' buffers too"


# threat: HTTP/2 abuse
@check("abuse: the limits are announced: 128 streams, 32 KiB of headers, windows of 256 KiB and 1 MiB")
def _announced(world):
    client = Client(world.clear.port)
    client.frame(PING, 0, 0, bytes(8))
    while (frame := client.read()).kind != PING:
        holds(frame.kind is not None, "the connection was closed")
        if frame.kind == WINDOW_UPDATE:
            client.window += struct.unpack(">I", frame.payload)[0]
    client.close()
    announced = [client.settings.get(name) for name in (3, 6, 4)]
    equal(announced, [STREAMS_MAX, HEAD_BYTES_MAX, STREAM_WINDOW_BYTES], "SETTINGS")
    equal(client.window, CONNECTION_WINDOW_BYTES, "the window of the connection")


# threat: HTTP/2 abuse
@check("abuse: 128 streams are served at once, and the next is refused")
def _streams(world):
    client = Client(world.clear.port)
    block = client.block(client.head("POST"))
    heads = b""
    for stream in range(1, 2 * STREAMS_MAX + 2, 2):
        heads += struct.pack(">I", len(block))[1:] + bytes([HEADERS, END_HEADERS]) + struct.pack(">I", stream) + block
    client.send(heads)
    frame = client.read_past(WINDOW_UPDATE)
    equal((frame.kind, frame.stream), (RST_STREAM, 2 * STREAMS_MAX + 1), "the first frame that comes")
    equal(frame.error(), "REFUSED_STREAM", "its code")
    for stream in range(1, 2 * STREAMS_MAX, 2):
        client.frame(DATA, END_STREAM, stream, b"")
    ends = {}
    while len(ends) < STREAMS_MAX:
        frame = client.read()
        holds(frame.kind not in (None, RST_STREAM, GOAWAY), f"frame {frame.kind} after {len(ends)} answers")
        if frame.kind == HEADERS:
            ends[frame.stream] = dict(client.decoder.decode(frame.payload))[":status"]
    client.close()
    equal(set(ends.values()), {"200"}, "statuses")


def in_one_piece(client, count, then):
    """Sends `count` requests at once, each with what `then` makes of its stream, and gives what becomes of a PING behind
    them: its answer, or the error that ends the connection."""
    fields = client.head(path="/public/slow?seconds=1")
    piece, client.send, send = [], lambda octets: piece.append(octets) or True, client.send
    for stream in range(1, 2 * count, 2):
        client.request(stream, BOTH, fields)
        then(client, stream)
    client.frame(PING, 0, 0, bytes(8))
    client.send = send
    # It fits into one read of the gateway, so that no stream is taken up before the last reset has come.
    holds(len(b"".join(piece)) < 8192, "it is too long")
    client.send(b"".join(piece))
    while (frame := client.read()).kind not in (None, PING, GOAWAY):
        pass
    return "answered" if frame.kind == PING else "closed" if frame.kind is None else frame.error()


# threat: HTTP/2 abuse
@check("abuse: 64 resets at once are borne, and one more ends the connection")
def _resets(world):
    for count, expected in ((RESETS_MAX, "answered"), (RESETS_MAX + 1, "ENHANCE_YOUR_CALM")):
        client = Client(world.clear.port)
        outcome = in_one_piece(client, count, lambda it, stream: it.frame(RST_STREAM, 0, stream, CANCEL))
        client.close()
        equal(outcome, expected, f"what becomes of {count} resets")


# threat: HTTP/2 abuse
@check("abuse: 64 requests that the gateway must reset are borne, and one more ends the connection")
def _provoked(world):
    client = Client(world.clear.port)
    fields = client.head(extra=[("connection", "close")])
    for number in range(RESETS_MAX):
        client.request(2 * number + 1, BOTH, fields)
        equal(client.outcome(2 * number + 1), ("stream", "PROTOCOL_ERROR"), f"the outcome of number {number + 1}")
    client.request(2 * RESETS_MAX + 1, BOTH, fields)
    equal(client.outcome(2 * RESETS_MAX + 1), ("connection", "ENHANCE_YOUR_CALM"), "the outcome of the next")
    client.close()


def of_size(client, octets):
    """A request over HTTP/2 whose fields count so many bytes, by the rule of RFC 9113, section 6.5.2."""
    head = client.head()
    used = sum(len(name) + len(value) + 32 for name, value in head)
    return [*head, ("x-fill", "y" * (octets - used - 32 - len("x-fill")))]


# threat: HTTP/2 abuse
@check("abuse: a head of 32 KiB is read over HTTP/1, of a byte less over HTTP/2, and a longer one is 431")
def _large_head(world):
    client = Client(world.clear.port)
    # The HTTP/2 library takes less than it announces, by a byte.
    for stream, octets, expected in ((1, HEAD_BYTES_MAX - 1, "200"), (3, HEAD_BYTES_MAX, "431"), (5, 60_000, "431")):
        block = client.block(of_size(client, octets))
        client.frame(HEADERS, END_STREAM, stream, block[:16_000])
        for at in range(16_000, len(block), 16_000):
            flags = END_HEADERS if at + 16_000 >= len(block) else 0
            client.frame(CONTINUATION, flags, stream, block[at : at + 16_000])
        status = None
        while status is None:
            frame = client.read()
            holds(frame.kind not in (None, GOAWAY), f"the connection ended at {octets} bytes")
            if frame.kind == HEADERS and frame.stream == stream:
                status = dict(client.decoder.decode(frame.payload))[":status"]
        equal(status, expected, f"the status of {octets} bytes over HTTP/2")
    client.close()
    for octets, expected in ((HEAD_BYTES_MAX, b"200"), (HEAD_BYTES_MAX + 1, b"431")):
        head = b"GET /public/echo HTTP/1.1\r\nHost: http.example\r\nConnection: close\r\nX-Fill: "
        fill = b"y" * (octets - len(head) - 4)
        answer = exchange(world.clear, head + fill + b"\r\n\r\n", until_close=True)
        equal(answer.split()[1], expected, f"the status of {octets} bytes over HTTP/1.1")


@check("abuse: an HPACK bomb, one large entry named 4,000 times, ends the connection")
def _bomb(world):
    client = Client(world.clear.port)
    block = client.encoder.encode([*client.head(), ("x-bomb", "y" * 3900)])
    client.frame(HEADERS, END_STREAM, 1, block + b"\xbe" * 4000)
    client.frame(CONTINUATION, END_HEADERS, 1, b"")
    outcome = client.outcome(1)
    client.close()
    equal(outcome, ("connection", "ENHANCE_YOUR_CALM"), "the outcome")


# threat: Huge or costly heads and bodies
@check("abuse: 128 headers are taken and 129 are 431 over both versions")
def _many_headers(world):
    for version, own in (("--http1.1", ["host", "accept"]), ("--http2-prior-knowledge", ["accept"])):
        for count, expected in ((128, "200"), (129, "431")):
            headers = [option for at in range(count - len(own)) for option in ("-H", f"x-{at}: 1")]
            options = [version, "-A", "", *headers, "-o", "/dev/null", "-w", "%{http_code}"]
            _, out, err = world.clear.curl("/public/echo", *options)
            equal(out, expected, f"the status of {count} headers with {version} ({err})")


# threat: An upgrade gets around the check
@check("abuse: CONNECT and TRACE are 405 over both versions, and an extended CONNECT is reset")
def _connect(world):
    client = Client(world.clear.port)
    client.request(1, fields=[(":method", "CONNECT"), (":authority", "http.example:80")])
    equal(client.outcome(1), ("status", "405"), "CONNECT over HTTP/2")
    client.request(3, fields=client.head("TRACE"))
    equal(client.outcome(3), ("status", "405"), "TRACE over HTTP/2")
    client.request(5, fields=[(":method", "CONNECT"), (":protocol", "websocket"), *client.head()[1:]])
    equal(client.outcome(5), ("stream", "PROTOCOL_ERROR"), "an extended CONNECT")
    client.close()
    for start in (b"CONNECT http.example:80", b"CONNECT http.example", b"CONNECT /public/echo", b"TRACE /public/echo"):
        request = start + b" HTTP/1.1\r\nHost: http.example\r\nConnection: close\r\n\r\n"
        equal(exchange(world.clear, request, until_close=True).split()[1], b"405", start.decode())
    seen = [request for request in world.upstream.seen if request["method"] in ("CONNECT", "TRACE")]
    equal(seen, [], "what the upstream has seen")


# threat: Gate and upstream see different paths or hosts
@check("abuse: a Host that is not the :authority is 400 and reaches no upstream")
def _two_hosts(world):
    client = Client(world.clear.port)
    pairs = [("http.example", "ws.example"), ("ws.example", "http.example"), ("http.example", "http.example.")]
    for at, (authority, host) in enumerate(pairs):
        client.request(2 * at + 1, fields=client.head(path="/public/two", host=authority, extra=[("host", host)]))
        equal(client.outcome(2 * at + 1), ("status", "400"), f"{authority} and {host}")
    client.close()
    seen = [request for request in world.upstream.seen if request["target"] == "/public/two"]
    equal(seen, [], "what the upstream has seen")


# threat: Answers of others, requests that run twice
@check("abuse: what a reset request leaves behind is not answered to the next")
def _no_mixing(world):
    client = Client(world.clear.port)
    for number in range(200):
        stream = 4 * number + 1
        client.request(stream, fields=client.head(path=f"/public/echo?dropped={number}"))
        client.frame(RST_STREAM, 0, stream, CANCEL)
        client.request(stream + 2, fields=client.head(path=f"/public/echo?kept={number}"))
        body = client.response(stream + 2)[2]
        holds(f"kept={number}".encode() in body, f"{number}: {body[:80]}")
    client.close()


@check("abuse: after all of it, requests are answered")
def _after(world):
    for path, options in (("/public/echo", []), ("/private", ["-H", f"X-API-Key: {world.clear.key}"])):
        _, out, err = world.clear.curl(path, *options)
        equal(seen_by(out + err)["target"], path, "the target at the upstream")
