"""An HTTP/2 client that sends whatever it is told to, frame by frame, and reads what comes back."""

import socket
import struct
import time

from hpack import Decoder, Encoder

from harness import seconds

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_FLAG = 0x1, 0x1, 0x4, 0x8, 0x20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

ERRORS = (
    "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR "
    "REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED"
).split()


class Frame:
    """A frame that came, or the end of the connection, whose kind is None."""

    def __init__(self, kind, flags=0, stream=0, payload=b""):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload

    def error(self):
        """The name of its error code."""
        at = 4 if self.kind == GOAWAY else 0
        code = struct.unpack(">I", self.payload[at : at + 4])[0]
        return ERRORS[code] if code < len(ERRORS) else str(code)


class Client:
    """One connection."""

    def __init__(self, port, settings=(), handshake=True, timeout=20):
        self.socket = socket.create_connection(("127.0.0.1", port), seconds(timeout))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.encoder, self.decoder = Encoder(), Decoder()
        self.buffer = b""
        self.settings = {}
        # How much the other side takes on all streams together, in bytes.
        self.window = 65_535
        if handshake:
            self.send(PREFACE)
            self.frame(SETTINGS, payload=b"".join(struct.pack(">HI", *item) for item in settings))
            self.await_settings()

    def await_settings(self):
        """Reads the other side's settings and the acknowledgment of ours."""
        theirs = acknowledged = False
        while not (theirs and acknowledged):
            frame = self.read()
            if frame.kind is None:
                raise AssertionError("the connection was closed during the handshake")
            if frame.kind == SETTINGS and frame.flags & ACK:
                acknowledged = True
            elif frame.kind == SETTINGS:
                theirs = True
                for at in range(0, len(frame.payload), 6):
                    name, value = struct.unpack(">HI", frame.payload[at : at + 6])
                    self.settings[name] = value
                self.frame(SETTINGS, ACK)
            elif frame.kind == WINDOW_UPDATE and frame.stream == 0:
                self.window += struct.unpack(">I", frame.payload)[0]

    def send(self, octets):
        """Sends bytes; whether the other side still takes them is seen when reading."""
        try:
            self.socket.sendall(octets)
            return True
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return False

    def frame(self, kind, flags=0, stream=0, payload=b"", length=None):
        length = len(payload) if length is None else length
        return self.send(struct.pack(">I", length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload)

    def head(self, method="GET", path="/public/echo", extra=(), host="http.example"):
        """The fields of a request."""
        return [(":method", method), (":scheme", "http"), (":path", path), (":authority", host), *extra]

    def block(self, fields):
        return self.encoder.encode(fields, huffman=False)

    def request(self, stream=1, flags=END_STREAM | END_HEADERS, fields=None):
        return self.frame(HEADERS, flags, stream, self.block(fields or self.head()))

    def read(self):
        """The next frame. A silent server is a TimeoutError, not the end of the connection."""
        try:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                piece = self.socket.recv(1 << 20)
                if not piece:
                    return Frame(None)
                self.buffer += piece
        except (ConnectionResetError, BrokenPipeError):
            return Frame(None)
        length = int.from_bytes(self.buffer[:3], "big")
        kind, flags = self.buffer[3], self.buffer[4]
        stream = int.from_bytes(self.buffer[5:9], "big") & 0x7FFFFFFF
        payload, self.buffer = self.buffer[9 : 9 + length], self.buffer[9 + length :]
        return Frame(kind, flags, stream, payload)

    def read_past(self, kind):
        """The next frame of another kind."""
        while (frame := self.read()).kind == kind:
            pass
        return frame

    def read_up_to(self, kind):
        """The next frame of this kind. The end of the connection is a failure."""
        while (frame := self.read()).kind != kind:
            if frame.kind is None:
                raise AssertionError("the connection was closed")
        return frame

    def outcome(self, stream=None, within=20):
        """What becomes of a violation: ("connection", code), ("stream", code), ("closed", None), or ("status", code)
        when a request is answered; a refusal of a stream that follows an answer counts as the refusal."""
        end = time.monotonic() + seconds(within)
        status = None
        while time.monotonic() < end:
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            try:
                frame = self.read()
            except TimeoutError:
                break
            if frame.kind is None:
                return ("closed", None)
            if frame.kind == GOAWAY and frame.error() != "NO_ERROR":
                return ("connection", frame.error())
            if frame.kind == RST_STREAM and stream in (None, frame.stream) and frame.error() != "NO_ERROR":
                return ("stream", frame.error())
            if frame.kind == HEADERS:
                fields = dict(self.decoder.decode(frame.payload))
                status = status or fields.get(":status")
                if status and int(status) < 200:
                    status = None
            if frame.kind in (HEADERS, DATA) and frame.flags & END_STREAM and stream in (None, frame.stream):
                break
        return ("status", status) if status else ("silence", None)

    def response(self, stream=1, within=20):
        """The status, fields and body of an answer; reads on until its end."""
        self.socket.settimeout(seconds(within))
        fields, body = None, b""
        while True:
            frame = self.read()
            if frame.kind is None:
                raise AssertionError("the connection was closed")
            if frame.kind == GOAWAY:
                raise AssertionError(f"GOAWAY {frame.error()}")
            if frame.kind == PING and not frame.flags & ACK:
                self.frame(PING, ACK, 0, frame.payload)
            if frame.kind == HEADERS:
                decoded = self.decoder.decode(frame.payload)
                if frame.stream == stream:
                    fields = fields or dict(decoded)
            if frame.stream != stream:
                continue
            if frame.kind == RST_STREAM:
                raise AssertionError(f"RST_STREAM {frame.error()}")
            if frame.kind == DATA:
                body += frame.payload
                if frame.payload:
                    self.frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(frame.payload)))
            if frame.kind in (HEADERS, DATA) and frame.flags & END_STREAM:
                return int(fields[":status"]), fields, body

    def is_usable(self):
        """Whether the connection still answers a PING, or has ended."""
        self.frame(PING, 0, 0, b"usable??")
        while True:
            frame = self.read()
            if frame.kind is None or (frame.kind == GOAWAY and frame.error() != "NO_ERROR"):
                return False
            if frame.kind == PING and frame.flags & ACK and frame.payload == b"usable??":
                return True

    def close(self):
        self.socket.close()
