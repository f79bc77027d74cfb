"""h11, which shares no code with httparse and hyper, reads alike the heads that we accept: h11_reads.py PROGRAM KIND FOLDER...

The inputs are those of a fuzz target's corpus. PROGRAM is `heads`, and KIND `request_head` or `answer_head`."""

import itertools
import os
import subprocess
import sys

import h11

# More than any input.
BYTES_MAX = 1 << 20


def request(octets):
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=BYTES_MAX)
    reader.receive_data(octets)
    event = reader.next_event()
    if not isinstance(event, h11.Request):
        return None
    return [event.method, event.target, event.http_version, end_of(reader), *fields(event)]


def answer(octets):
    method, head = (b"HEAD" if octets[0] & 1 else b"GET"), octets[1:]
    reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=BYTES_MAX)
    reader.send(h11.Request(method=method, target=b"/", headers=[("Host", "a")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(head)
    event = reader.next_event()
    if isinstance(event, h11.InformationalResponse):
        return [str(event.status_code).encode(), event.reason, b"0", *fields(event)]
    if not isinstance(event, h11.Response):
        return None
    return [str(event.status_code).encode(), event.reason, end_of(reader), *fields(event)]


def fields(event):
    """Names in the case that they came in, and values."""
    return itertools.chain.from_iterable(event.headers.raw_items())


def end_of(reader):
    body = reader._reader
    kind = type(body).__name__
    if kind == "ContentLengthReader":
        return str(body._length).encode()
    return {"ChunkedReader": b"chunked", "Http10Reader": b"close", "NoneType": b"0"}.get(kind, kind.encode())


def main():
    program, kind, *folders = sys.argv[1:]
    paths = [entry.path for folder in folders for entry in os.scandir(folder) if entry.is_file()]
    accepted = wrong = 0
    for at in range(0, len(paths), 500):
        shown = subprocess.run([program, kind, *paths[at : at + 500]], capture_output=True, check=True, text=True).stdout
        for line in shown.splitlines():
            path, *parts = line.split(" ")
            ours = [bytes.fromhex(part) for part in parts]
            with open(path, "rb") as file:
                octets = file.read()
            try:
                theirs = (request if kind == "request_head" else answer)(octets)
            except h11.RemoteProtocolError as error:
                theirs = error
            accepted += 1
            if as_h11_writes(ours) != theirs and not is_stricter(kind, ours, theirs):
                wrong += 1
                print(f"{path}: we read {ours}, h11 {theirs!r}", file=sys.stderr)
    print(f"{kind}: h11 reads alike {accepted - wrong} of {accepted} heads that we accept")
    return 1 if wrong or not accepted else 0


def as_h11_writes(parts):
    """What we read, with the one value that h11 writes in lower case: the Transfer-Encoding."""
    values = zip([None, *parts], parts)
    return [value.lower() if (name or b"").lower() == b"transfer-encoding" else value for name, value in values]


def is_stricter(kind, ours, theirs):
    """Whether h11 refuses a 101 because no request of its own asked for it, or a target for bytes beyond ASCII, which we
    mark as odd."""
    if kind == "answer_head":
        return ours[0] == b"101" and "without a pending proposal" in str(theirs)
    return not ours[1].isascii() and "illegal request line" in str(theirs)


if __name__ == "__main__":
    sys.exit(main())
