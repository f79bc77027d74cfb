"""Malformed requests of HTTP/2, and header blocks that HPACK does not allow: the sections on messages of RFC 7540 and
RFC 9113, and RFC 7541."""

import struct

from frames import DATA, END_HEADERS, END_STREAM, HEADERS, PUSH_PROMISE
from harness import KNOWN
from http2 import BOTH, OPEN, post, violation

KNOWN["h2 8.1.2.1: a pseudo-header in trailers"] = (
    "the library drops it instead; it reaches no upstream",
    "status 200, not PROTOCOL_ERROR",
)


def malformed(name, unseen=None):
    """A malformed request: its stream is reset, or it is answered with 400."""
    return violation(name, ["PROTOCOL_ERROR"], True, 1, "400", unseen)


def put(head, name, value):
    """The fields with another value for one of them."""
    return [(field, value if field == name else was) for field, was in head]


@violation("8.1: a second HEADERS without END_STREAM", ["PROTOCOL_ERROR"], True)
def _(client):
    post(client)
    client.frame(HEADERS, END_HEADERS, 1, client.block([("x-a", "b")]))


def without(fields, name):
    return [field for field in fields if field[0] != name]


MALFORMED = {
    "8.1.2: a header name in upper case": lambda head: [*head, ("X-TEST", "ok")],
    "8.1.2: a header name with a space": lambda head: [*head, ("x test", "ok")],
    "8.1.2: a header name with a colon": lambda head: [*head, ("x:test", "ok")],
    "8.1.2: an empty header name": lambda head: [*head, ("", "ok")],
    "8.1.2: a header value with CR and LF": lambda head: [*head, ("x-test", "a\r\nx-agent-id: 1")],
    "8.1.2: a header value with LF": lambda head: [*head, ("x-test", "a\nx-agent-id: 1")],
    "8.1.2: a header value with NUL": lambda head: [*head, ("x-test", "a\0b")],
    "8.1.2.1: an unknown pseudo-header": lambda head: [*head[:3], (":test", "ok"), *head[3:]],
    "8.1.2.1: :status in a request": lambda head: [*head[:3], (":status", "200"), *head[3:]],
    "8.1.2.1: a pseudo-header after a header": lambda head: [("x-test", "ok"), *head],
    "8.1.2.2: a Connection header": lambda head: [*head, ("connection", "keep-alive")],
    "8.1.2.2: Transfer-Encoding": lambda head: [*head, ("transfer-encoding", "chunked")],
    "8.1.2.2: Upgrade": lambda head: [*head, ("upgrade", "websocket")],
    "8.1.2.2: TE other than trailers": lambda head: [*head, ("te", "trailers, deflate")],
    "8.1.2.3: an empty :path": lambda head: put(head, ":path", ""),
    "8.1.2.3: no :method": lambda head: without(head, ":method"),
    "8.1.2.3: no :scheme": lambda head: without(head, ":scheme"),
    "8.1.2.3: no :path": lambda head: without(head, ":path"),
    "8.1.2.3: :method twice": lambda head: [head[0], *head],
    "8.1.2.3: :scheme twice": lambda head: [head[1], *head],
    "8.1.2.3: :path twice": lambda head: [head[2], *head],
    "8.3.1 (RFC 9113): :authority twice": lambda head: [head[3], *head],
    "8.3.1 (RFC 9113): Host other than :authority": lambda head: [*head, ("host", "ws.example")],
    "8.3.1 (RFC 9113): Host twice": lambda head: [*head[:3], ("host", "http.example"), ("host", "ws.example")],
    "8.3.1 (RFC 9113): :path that is a word": lambda head: put(head, ":path", "public/malformed"),
    "8.3.1 (RFC 9113): :path with a space": lambda head: put(head, ":path", "/public/malformed b"),
    "8.3.1 (RFC 9113): :path with CR and LF": lambda head: put(head, ":path", "/public/malformed HTTP/1.1\r\nx: y"),
    "8.3.1 (RFC 9113): user info in :authority": lambda head: put(head, ":authority", "a@http.example"),
}

for title, change in MALFORMED.items():

    @malformed(title, unseen="malformed")
    def _(client, change=change):
        client.request(1, fields=change(client.head(path="/public/malformed")))


@malformed("8.1.2.1: a pseudo-header in trailers")
def _(client):
    post(client)
    client.frame(HEADERS, BOTH, 1, client.block([(":method", "GET")]))


for title, pieces in (("in one frame", [b"test"]), ("in several frames", [b"te", b"st"])):

    @malformed(f"8.1.2.6: Content-Length that is not that of DATA {title}")
    def _(client, pieces=pieces):
        post(client, extra=[("content-length", "1")])
        for at, piece in enumerate(pieces):
            client.frame(DATA, END_STREAM if at + 1 == len(pieces) else 0, 1, piece)


@malformed("8.1.2.6: less DATA than Content-Length")
def _(client):
    post(client, extra=[("content-length", "10")])
    client.frame(DATA, END_STREAM, 1, b"test")


@malformed("8.1.2.6: Content-Length twice")
def _(client):
    post(client, extra=[("content-length", "4"), ("content-length", "5")])
    client.frame(DATA, END_STREAM, 1, b"test")


@violation("8.2: PUSH_PROMISE from a client", ["PROTOCOL_ERROR"])
def _(client):
    client.request(1, OPEN, client.head("POST"))
    client.frame(PUSH_PROMISE, END_HEADERS, 1, struct.pack(">I", 2) + client.block(client.head()))


for title, block in (
    ("2.3.3: an index that does not exist", b"\xff\x00"),
    ("4.2: a size update at the end of a block", None),
    ("5.2: Huffman padding longer than 7 bits", b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"),
    ("5.2: Huffman padding of zeros", b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90"),
    ("5.2: Huffman text with EOS", b"\x00\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f"),
    ("6.1: index 0", b"\x80"),
    ("6.3: a table larger than SETTINGS_HEADER_TABLE_SIZE", b"\x3f\xe1\xff\x03"),
):

    @violation(f"HPACK {title}", ["COMPRESSION_ERROR"], True)
    def _(client, block=block):
        own = client.block(client.head())
        if block is None:
            payload = own + b"\x3f\xe1\x1f"
        elif block[0] in (0x3F, 0x80, 0xFF):
            payload = block + own
        else:
            payload = own + block
        client.frame(HEADERS, BOTH, 1, payload)
