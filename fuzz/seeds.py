"""Inputs at the limits that the readers hold, of which chance makes none in a short run: seeds.py TARGET FOLDER"""

import os
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


SEEDS = {
    "request_head": lambda: heads(b"GET / HTTP/1.1\r\nHost: a\r\n"),
    "answer_head": lambda: heads(b"\x00HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"),
    "chunks": chunks,
}

target, folder = sys.argv[1:]
for at, seed in enumerate(SEEDS.get(target, tuple)()):
    with open(os.path.join(folder, f"limit-{at}"), "wb") as file:
        file.write(seed)
