"""Inputs at the limits that the readers hold, of which chance makes none in a short run: seeds.py TARGET FOLDER"""

import json
import os
import re
import sys

HEAD_BYTES_MAX = 32 * 1024
FIELDS_MAX = 128
LINE_BYTES_MAX = 4 * 1024
TRAILER_BYTES_MAX = 16 * 1024


def heads(first):
    """Heads with as many fields and bytes as are taken, one less and one more."""
    for count in (FIELDS_MAX - 1, FIELDS_MAX, FIELDS_MAX + 1):
        yield first + b"".join(b"x-%d: %d\r\n" % (at, at) for at in range(count - 1)) + b"\r\n"
    for length in (HEAD_BYTES_MAX - 1, HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1):
        yield first + b"x: " + b"y" * (length - len(first) - 7) + b"\r\n\r\n"


def chunks():
    """Bodies in one piece, with lines and trailers as long as are taken, and a little less and more."""
    for length in range(LINE_BYTES_MAX - 3, LINE_BYTES_MAX + 4):
        yield b"\x001;" + b"x" * (length - 2) + b"\r\na\r\n0\r\n\r\n"
    for length in range(TRAILER_BYTES_MAX - 3, TRAILER_BYTES_MAX + 4):
        line = b"x: " + b"y" * (LINE_BYTES_MAX - 13) + b"\r\n"
        rest = length - 4 * len(line)
        yield b"\x000\r\n" + line * 4 + b"z: " + b"y" * (rest - 5) + b"\r\n\r\n"


def field(number, value):
    """A field of a message in protobuf; lengths below 128 take one byte, and others two."""
    length = len(value)
    size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return bytes([number << 3 | 2]) + size + value


def checks():
    """Calls as Envoy writes them, with headers in each of its two ways."""
    def pair(name, value):
        return field(1, name) + field(2, value)

    line = field(2, b"GET") + field(4, b"/a?b") + field(5, b"a.test") + field(6, b"http")
    joined = field(3, pair(b"x-api-key", b"k")) + field(3, pair(b":path", b"/a?b"))
    raw = field(13, field(1, field(1, b"x-api-key") + field(3, b"k")))
    source = field(1, field(1, field(1, field(2, b"192.0.2.1"))))
    for headers in (joined, raw, joined + raw):
        request = field(4, field(2, line + headers))
        yield field(1, source + request + field(10, pair(b"tenant", b"t")))


def original_parts():
    """Parts of requests, and a part that holds another."""
    for target in (b"/a?b", b"/a HTTP/1.1\r\nX: y", b"/a\r\n\r\n", b"*", b"/a#b"):
        yield b"\xff".join((b"GET", target, b"a.test", b"x-note", b" y ", b"x-api-key", b"k"))


def signatures():
    """The vectors of ERC-8128, and requests at the limits of signatures. The first byte is that of https, with a body or without."""
    with open("clients/erc8128.json", encoding="utf-8") as file:
        vectors = json.load(file)
    for vector in vectors:
        scheme, host, target = re.fullmatch(r"(https?)://([^/?]+)(.*)", vector["url"]).groups()
        body = vector["body"]
        mode = (scheme == "http") + 2 * (body is not None)
        fields = [*vector["headers"], ("Signature-Input", f"{vector['label']}={vector['params']}")]
        fields.append(("Signature", f"{vector['label']}=:{vector['signature']}:"))
        line = [vector["method"], target, host, body or ""]
        yield bytes([mode]) + b"\xff".join(text.encode() for text in [*line, *(part for field in fields for part in field)])


def messages():
    """Messages of MCP: calls, a batch, and answers with lists in JSON and events."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "progressToken": 1}
    for name in ("search", "\u00e4\U0001f600", ""):
        params = {"name": name, "uri": name, "arguments": {"a": [[1.5e3, None, {"name": "b"}]]}, "_meta": meta}
        for method in ("tools/call", "prompts/get", "resources/read", "tools/list"):
            body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode()
            yield body
            yield body + b"\xff" + name.encode()
    calls = [{"method": "notifications/initialized"}, {"id": "a", "result": {}}, {"id": 1, "method": "ping"}]
    yield json.dumps(calls).encode()
    yield b'{"m\\u0065thod":"to\\u006fls/call","params":{"n\\u0061me":"search"}}'
    tools = [{"name": name, "inputSchema": {}} for name in ("a", "longer", "b")]
    listed = json.dumps({"id": 1, "result": {"tools": tools, "ttlMs": 60000, "cacheScope": "public"}})
    yield listed.encode()
    for end in ("\n", "\r\n", "\r"):
        yield f": ping{end}{end}event: message{end}data: {listed[:20]}{end}data:{listed[20:]}{end}{end}id: 1{end}{end}".encode()


SEEDS = {
    "request_head": lambda: heads(b"GET / HTTP/1.1\r\nHost: a\r\n"),
    "answer_head": lambda: heads(b"\x00HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"),
    "chunks": chunks,
    "original_parts": original_parts,
    "check_request": checks,
    "signatures": signatures,
    "messages": messages,
}

target, folder = sys.argv[1:]
for at, seed in enumerate(SEEDS.get(target, tuple)()):
    with open(os.path.join(folder, f"limit-{at}"), "wb") as file:
        file.write(seed)
