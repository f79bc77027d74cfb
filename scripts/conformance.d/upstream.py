"""An HTTP/1.1 server that says what it has seen, and answers in every shape that a gateway has to pass on."""

import asyncio
import hashlib
import json
import socket
import threading
import urllib.parse


# The bytes of bodies repeat after 251 of them.
PATTERN = bytes(range(251)) * 256


class Upstream:
    """Runs in a thread of its own until the process ends; `seen` has every request, in order, and `sent` the number of
    bytes of bodies that its system has taken."""

    def __init__(self, port):
        self.port = port
        self.seen = []
        self.sent = 0
        # The targets of the requests whose connections broke.
        self.cut_off = []
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        started.wait(10)

    def _run(self, started):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20))
        started.set()
        self.loop.run_forever()

    async def _serve(self, reader, writer):
        targets = []
        try:
            while await self._one(reader, writer, targets):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            self.cut_off += targets[-1:]
        finally:
            writer.close()

    async def _one(self, reader, writer, targets):
        head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
        if not head:
            return False
        lines = head.decode("latin-1").split("\r\n")
        method, target, _version = lines[0].split(" ", 2)
        headers = [tuple(line.split(":", 1)) for line in lines[1:] if line]
        headers = [(name.lower(), value.strip()) for name, value in headers]
        request = {"method": method, "target": target, "headers": headers, "trailers": [], "body": b""}
        named = dict(headers)
        if named.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.seen.append(request)
        targets.append(target)
        if named.get("transfer-encoding") == "chunked":
            await self._chunks(reader, request)
        else:
            request["body"] = await reader.readexactly(int(named.get("content-length", 0)))
        path = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(path.query))
        kind = path.path.rsplit("/", 1)[-1]
        answer = getattr(self, f"answer_{kind}", self.answer_echo)
        goes_on = await answer(request, query, named, writer)
        await writer.drain()
        return goes_on is not False

    async def _chunks(self, reader, request):
        while True:
            size = int((await reader.readline()).split(b";")[0], 16)
            if size == 0:
                break
            request["body"] += await reader.readexactly(size)
            await reader.readexactly(2)
        while (line := await reader.readline()).strip():
            request["trailers"].append(line.decode("latin-1").strip())

    @staticmethod
    def whole(writer, body, status="200 OK", headers="", head_only=False):
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        writer.write(head.encode() + (b"" if head_only else body))

    async def answer_echo(self, request, _query, _named, writer):
        seen = {key: request[key] for key in ("method", "target", "headers", "trailers")}
        seen["bytes"] = len(request["body"])
        seen["sha256"] = hashlib.sha256(request["body"]).hexdigest()
        body = json.dumps(seen).encode()
        self.whole(writer, body, headers="Content-Type: application/json\r\n", head_only=request["method"] == "HEAD")

    async def answer_bytes(self, request, query, named, writer):
        """`count` bytes, or the range of them that is asked for."""
        count = int(query["count"])
        first, last, head = 0, count - 1, "200 OK\r\nAccept-Ranges: bytes"
        asked = named.get("range", "")
        if asked.startswith("bytes="):
            first, end = asked[6:].split("-")
            first, last = int(first), min(int(end or last), last)
            head = f"206 Partial Content\r\nContent-Range: bytes {first}-{last}/{count}"
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {last + 1 - first}\r\n\r\n".encode())
        if request["method"] == "HEAD":
            return
        # No bytes wait in this process, and few in the system, so that `sent` is close to what the gateway has taken.
        writer.transport.set_write_buffer_limits(0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        while first <= last:
            at = first % 251
            piece = PATTERN[at : at + last + 1 - first]
            writer.write(piece)
            await writer.drain()
            first += len(piece)
            self.sent += len(piece)

    async def answer_slow(self, request, query, _named, writer):
        await asyncio.sleep(float(query.get("seconds", "0.5")))
        self.whole(writer, b"late")

    async def answer_status(self, _request, query, _named, writer):
        code = query["code"]
        length = "" if code in ("204", "304") else "Content-Length: 0\r\n"
        writer.write(f"HTTP/1.1 {code} Chosen\r\n{length}\r\n".encode())

    async def answer_close(self, _request, _query, _named, writer):
        """A body that ends with the connection."""
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")
        return False

    async def answer_broken(self, _request, _query, _named, writer):
        """Less than was announced."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        return False

    async def answer_trailers(self, _request, _query, _named, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
        writer.write(b"5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n")

    async def answer_early(self, _request, _query, _named, writer):
        """An interim answer before the final one."""
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
        self.whole(writer, b"final")

    async def answer_events(self, _request, query, _named, writer):
        """Server-sent events, each a pause after the other."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(int(query.get("count", "5"))):
            event = f'id: {number}\nevent: tick\ndata: {{"n": {number}}}\n\n'.encode()
            writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            await writer.drain()
            await asyncio.sleep(float(query.get("pause", "0.2")))
        writer.write(b"0\r\n\r\n")
