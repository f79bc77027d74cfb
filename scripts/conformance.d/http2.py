"""Violations of HTTP/2 below its messages, and what must be tolerated: the generic cases of h2spec, by their section of
RFC 7540, which h2spec is written against."""

import struct

from frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_FLAG,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Client,
)
from harness import KNOWN, check, equal, holds

UPLOAD = "/public/echo"
SLOW = "/public/slow?seconds=4"
OPEN = END_HEADERS
BOTH = END_HEADERS | END_STREAM


def violation(name, codes, is_stream_error=False, stream=None, status=None, unseen=None):
    """A case: the function sends something wrong, which must be answered with one of these codes. As in h2spec, the end
    of the connection is an answer to whatever is wrong, also after GOAWAY with another code, which is then shown; for
    malformed requests a status is, too. Silence is none. No target with the word `unseen` may have reached the upstream."""

    def register(function):
        # threat: HTTP/2 abuse
        @check(f"h2 {name}")
        def _made(world):
            client = Client(world.clear.port)
            try:
                # What closes every connection is no answer.
                holds(client.is_usable(), "the connection ended before the violation")
                function(client)
                kind, code = client.outcome(stream)
                if kind == "connection" and code not in codes:
                    kind, code = f"{client.outcome(stream)[0]} after", code
            finally:
                client.close()
            fine = kind in ("closed", "closed after") or (kind == "connection" and code in codes)
            fine = fine or (is_stream_error and kind == "stream" and code in codes)
            fine = fine or (status is not None and kind == "status" and code == status)
            holds(fine, f"{kind} {code or ''}, not {' or '.join(codes)}")
            targets = [request["target"] for request in world.upstream.seen if unseen and unseen in request["target"]]
            equal(targets, [], "what the upstream has seen")
            return (
                f"{kind} {code or ''}{' where ' + codes[0] + ' is asked for' if kind == 'closed after' else ''}".strip()
            )

        return function

    return register


def tolerated(name):
    """A case that must not disturb the connection."""

    def register(function):
        @check(f"h2 {name}")
        def _made(world):
            client = Client(world.clear.port)
            try:
                function(client)
                holds(client.is_usable(), "the connection can't be used any more")
            finally:
                client.close()

        return function

    return register


KNOWN["h2 3.5: a preface that is not followed by SETTINGS is an error"] = (
    "the library takes any frame as the first",
    "the connection goes on",
)


def post(client, stream=1, path=UPLOAD, extra=()):
    client.request(stream, OPEN, client.head("POST", path, extra))


def finish(client, stream):
    client.request(stream)
    client.response(stream)


@check("h2 3.5: an invalid preface closes the connection")
def _preface(world):
    client = Client(world.clear.port, handshake=False)
    client.send(b"PRI * HTTP/2.0\r\n\r\nSS\r\n\r\n")
    seen = b""
    while piece := client.socket.recv(4096):
        seen += piece
    client.close()
    return f"answered {seen[:12].decode()!r}, closed"


@check("h2 3.5: a preface that is not followed by SETTINGS is an error")
def _no_settings(world):
    client = Client(world.clear.port, handshake=False)
    client.send(PREFACE)
    is_usable = client.is_usable()
    client.close()
    holds(not is_usable, "the connection goes on")


@tolerated("4.1: a frame of unknown type is ignored")
def _(client):
    client.frame(0x16, 0, 0, bytes(8))


@tolerated("4.1: undefined flags are ignored")
def _(client):
    client.frame(PING, 0x16, 0, bytes(8))


@tolerated("4.1: the reserved bit is ignored")
def _(client):
    client.frame(PING, 0, 1 << 31, bytes(8))


@tolerated("4.2: DATA of 2^14 bytes is taken")
def _(client):
    post(client)
    client.frame(DATA, END_STREAM, 1, bytes(1 << 14))
    holds(b'"bytes": 16384' in client.response()[2], "the upstream saw other bytes")


@violation("4.2: DATA longer than SETTINGS_MAX_FRAME_SIZE", ["FRAME_SIZE_ERROR"], True)
def _(client):
    post(client)
    client.frame(DATA, END_STREAM, 1, bytes(client.settings.get(5, 1 << 14) + 1))


@violation("4.2: HEADERS longer than SETTINGS_MAX_FRAME_SIZE", ["FRAME_SIZE_ERROR"])
def _(client):
    client.frame(HEADERS, BOTH, 1, bytes(client.settings.get(5, 1 << 14) + 1))


@violation("4.3: an invalid header block", ["COMPRESSION_ERROR"])
def _(client):
    client.frame(HEADERS, BOTH, 1, b"\x40\x02\x00\x00\xff\xff\xff\xff\xff\xff\xff")


@violation("4.3: PRIORITY inside a header block", ["PROTOCOL_ERROR"])
def _(client):
    client.request(1, END_STREAM)
    client.frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 255))


@violation("4.3: HEADERS of another stream inside a header block", ["PROTOCOL_ERROR"])
def _(client):
    client.request(1, END_STREAM)
    client.request(3)


for kind, payload in (
    ("DATA", b"test"),
    ("RST_STREAM", bytes(4)),
    ("WINDOW_UPDATE", b"\0\0\0d"),
    ("CONTINUATION", b"\x82"),
):
    number = {"DATA": DATA, "RST_STREAM": RST_STREAM, "WINDOW_UPDATE": WINDOW_UPDATE, "CONTINUATION": CONTINUATION}[
        kind
    ]

    @violation(f"5.1: {kind} on an idle stream", ["PROTOCOL_ERROR"])
    def _(client, number=number, payload=payload):
        client.frame(number, END_HEADERS if number == CONTINUATION else 0, 1, payload)


def half_closed(client):
    client.request(1, fields=client.head(path=SLOW))


def reset(client):
    client.request(1, OPEN, client.head("POST"))
    client.frame(RST_STREAM, 0, 1, struct.pack(">I", 8))


def finished(client):
    finish(client, 1)


for state, enter in (("half closed (remote)", half_closed), ("reset by the client", reset), ("closed", finished)):
    lenient = ["STREAM_CLOSED", "PROTOCOL_ERROR"]

    @violation(f"5.1: DATA on a stream that is {state}", ["STREAM_CLOSED"], True)
    def _(client, enter=enter):
        enter(client)
        client.frame(DATA, END_STREAM, 1, b"test")

    @violation(f"5.1: HEADERS on a stream that is {state}", lenient, True)
    def _(client, enter=enter):
        enter(client)
        client.request(1)

    @violation(f"5.1: CONTINUATION on a stream that is {state}", lenient)
    def _(client, enter=enter):
        enter(client)
        client.frame(CONTINUATION, END_HEADERS, 1, client.block(client.head()))


@violation("5.1.1: a stream with an even number", ["PROTOCOL_ERROR"])
def _(client):
    client.request(2)


@violation("5.1.1: a stream with a smaller number than the one before", ["PROTOCOL_ERROR"])
def _(client):
    finish(client, 5)
    client.request(3)


@violation("5.1.2: more streams than SETTINGS_MAX_CONCURRENT_STREAMS", ["PROTOCOL_ERROR", "REFUSED_STREAM"], True)
def _(client):
    for at in range(client.settings[3] + 1):
        client.request(2 * at + 1, OPEN, client.head("POST", SLOW))


@violation("5.3.1: HEADERS that make a stream depend on itself", ["PROTOCOL_ERROR"], True)
def _(client):
    client.frame(HEADERS, BOTH | PRIORITY_FLAG, 1, struct.pack(">IB", 1, 255) + client.block(client.head()))


@violation("5.3.1: PRIORITY that makes a stream depend on itself", ["PROTOCOL_ERROR"], True)
def _(client):
    client.frame(PRIORITY, 0, 2, struct.pack(">IB", 2, 255))


@violation("5.5: an unknown frame inside a header block", ["PROTOCOL_ERROR"])
def _(client):
    client.request(1, END_STREAM)
    client.frame(0x16, 0, 0, bytes(8))


@violation("6.1: DATA on stream 0", ["PROTOCOL_ERROR"])
def _(client):
    client.frame(DATA, 0, 0, b"test")


@violation("6.1: DATA with more padding than payload", ["PROTOCOL_ERROR"])
def _(client):
    post(client)
    client.frame(DATA, END_STREAM | PADDED, 1, b"\x06test")


@tolerated("6.1: DATA with padding")
def _(client):
    post(client)
    client.frame(DATA, END_STREAM | PADDED, 1, b"\x03test\0\0\0")
    holds(b'"bytes": 4' in client.response()[2], "padding is no body")


@violation("6.2: HEADERS on stream 0", ["PROTOCOL_ERROR"])
def _(client):
    client.request(0)


@violation("6.2: HEADERS with more padding than payload", ["PROTOCOL_ERROR"])
def _(client):
    client.frame(HEADERS, BOTH | PADDED, 1, b"\xff" + client.block(client.head()))


@violation("6.3: PRIORITY on stream 0", ["PROTOCOL_ERROR"])
def _(client):
    client.frame(PRIORITY, 0, 0, bytes(5))


@violation("6.3: PRIORITY that is not 5 bytes long", ["FRAME_SIZE_ERROR"], True)
def _(client):
    client.frame(PRIORITY, 0, 1, bytes(4))


@violation("6.4: RST_STREAM on stream 0", ["PROTOCOL_ERROR"])
def _(client):
    client.frame(RST_STREAM, 0, 0, bytes(4))


@violation("6.4: RST_STREAM that is not 4 bytes long", ["FRAME_SIZE_ERROR"])
def _(client):
    post(client)
    client.frame(RST_STREAM, 0, 1, bytes(3))


@violation("6.5: an acknowledgment of SETTINGS with payload", ["FRAME_SIZE_ERROR"])
def _(client):
    client.frame(SETTINGS, ACK, 0, bytes(1))


@violation("6.5: SETTINGS on a stream", ["PROTOCOL_ERROR"])
def _(client):
    client.frame(SETTINGS, 0, 1, struct.pack(">HI", 3, 100))


@violation("6.5: SETTINGS whose length is no multiple of 6", ["FRAME_SIZE_ERROR"])
def _(client):
    client.frame(SETTINGS, 0, 0, bytes(3))


for what, name, value, code in (
    ("ENABLE_PUSH neither 0 nor 1", 2, 2, "PROTOCOL_ERROR"),
    ("INITIAL_WINDOW_SIZE above 2^31-1", 4, 1 << 31, "FLOW_CONTROL_ERROR"),
    ("MAX_FRAME_SIZE below 2^14", 5, (1 << 14) - 1, "PROTOCOL_ERROR"),
    ("MAX_FRAME_SIZE above 2^24-1", 5, 1 << 24, "PROTOCOL_ERROR"),
):

    @violation(f"6.5.2: {what}", [code])
    def _(client, name=name, value=value):
        client.frame(SETTINGS, 0, 0, struct.pack(">HI", name, value))


@tolerated("6.5.2: an unknown setting is ignored")
def _(client):
    client.frame(SETTINGS, 0, 0, struct.pack(">HI", 0xFF, 1))


@tolerated("6.5.3: of two values of one setting the last counts, and SETTINGS are acknowledged")
def _(client):
    client.frame(SETTINGS, 0, 0, struct.pack(">HIHI", 4, 100, 4, 1))
    equal(client.read_past(WINDOW_UPDATE).flags, ACK, "flags of SETTINGS")
    client.request(1)
    equal(len(client.read_up_to(DATA).payload), 1, "bytes of DATA in a window of 1")


@tolerated("6.7: PING is answered with the same payload")
def _(client):
    client.frame(PING, 0, 0, b"h2spec!!")
    frame = client.read_past(WINDOW_UPDATE)
    equal((frame.kind, frame.flags, frame.payload), (PING, ACK, b"h2spec!!"), "frame")


@tolerated("6.7: an acknowledgment of no PING is not answered")
def _(client):
    client.frame(PING, ACK, 0, b"invalid!")
    client.frame(PING, 0, 0, b"h2spec!!")
    equal(client.read_past(WINDOW_UPDATE).payload, b"h2spec!!", "payload")


@violation("6.7: PING on a stream", ["PROTOCOL_ERROR"])
def _(client):
    client.frame(PING, 0, 1, bytes(8))


@violation("6.7: PING that is not 8 bytes long", ["FRAME_SIZE_ERROR"])
def _(client):
    client.frame(PING, 0, 0, bytes(6))


@violation("6.8: GOAWAY on a stream", ["PROTOCOL_ERROR"])
def _(client):
    client.frame(GOAWAY, 0, 1, bytes(8))
