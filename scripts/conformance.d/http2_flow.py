"""Flow control, header blocks in several frames, and unknown codes: sections 6.9, 6.10 and 7 of RFC 7540."""

import struct

from frames import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE
from harness import equal, holds
from http2 import post, tolerated, violation


@violation("6.9: WINDOW_UPDATE of 0 on the connection", ["PROTOCOL_ERROR"])
def _(client):
    client.frame(WINDOW_UPDATE, 0, 0, bytes(4))


@violation("6.9: WINDOW_UPDATE of 0 on a stream", ["PROTOCOL_ERROR"], True)
def _(client):
    post(client)
    client.frame(WINDOW_UPDATE, 0, 1, bytes(4))


@violation("6.9: WINDOW_UPDATE that is not 4 bytes long", ["FRAME_SIZE_ERROR"])
def _(client):
    client.frame(WINDOW_UPDATE, 0, 0, bytes(3))


@violation("6.9.1: the window of the connection above 2^31-1", ["FLOW_CONTROL_ERROR"])
def _(client):
    client.frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFFFFFF))
    client.frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFFFFFF))


@violation("6.9.1: the window of a stream above 2^31-1", ["FLOW_CONTROL_ERROR"], True)
def _(client):
    post(client)
    client.frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 0x7FFFFFFF))
    client.frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 0x7FFFFFFF))


@tolerated("6.9.2: a window that becomes negative is respected until it is positive again")
def _(client):
    client.frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 3))
    client.request(1)
    equal(len(client.read_up_to(DATA).payload), 3, "bytes of DATA in a window of 3")
    client.frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2))
    client.frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 2))
    equal(len(client.read_up_to(DATA).payload), 1, "bytes of DATA in a window of -1 + 2")


@violation("6.9.2: INITIAL_WINDOW_SIZE that makes a window too large", ["FLOW_CONTROL_ERROR"])
def _(client):
    post(client)
    client.frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 0x7FFF0000 - 65535))
    client.frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0x7FFFFFFF))


@tolerated("6.10: a header block in many CONTINUATION frames")
def _(client):
    block = client.block(client.head(extra=[("x-long", "x" * 2000)]))
    client.frame(HEADERS, END_STREAM, 1, block[:10])
    for at in range(10, len(block), 500):
        client.frame(CONTINUATION, END_HEADERS if at + 500 >= len(block) else 0, 1, block[at : at + 500])
    holds(b"x" * 2000 in client.response()[2], "the upstream did not see the header")


@violation("6.10: CONTINUATION followed by another frame", ["PROTOCOL_ERROR"])
def _(client):
    block = client.block(client.head())
    client.frame(HEADERS, END_STREAM, 1, block[:4])
    client.frame(CONTINUATION, 0, 1, block[4:8])
    client.frame(DATA, END_STREAM, 1, b"test")


@violation("6.10: CONTINUATION on stream 0", ["PROTOCOL_ERROR"])
def _(client):
    client.request(1, END_STREAM)
    client.frame(CONTINUATION, END_HEADERS, 0, client.block([("x-a", "b")]))


@violation("6.10: CONTINUATION after the end of a header block", ["PROTOCOL_ERROR"])
def _(client):
    post(client)
    client.frame(CONTINUATION, END_HEADERS, 1, client.block([("x-a", "b")]))


@tolerated("7: RST_STREAM with an unknown code")
def _(client):
    post(client)
    client.frame(RST_STREAM, 0, 1, struct.pack(">I", 0xFF))
