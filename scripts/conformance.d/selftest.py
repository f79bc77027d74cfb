"""The checks against servers that keep no promise: each check must fail, but for those that such a server does keep.

`mute` shakes hands, reads, answers nothing and never ends; `hasty` ends each connection once it was shaken; `yes` answers
every request with 200 and every PING, and knows no errors."""

import os
import socket
import ssl
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import harness
import world as worlds
from frames import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, SETTINGS
from h2_upstream import H2Upstream
from upstream import Upstream

# Checks that need not fail, by the server: it does what they ask for, or deviates as is known of the gateway.
FULFILLED = {
    # Python's own TLS keeps this promise.
    "mute": "openssl: TLS 1.2",
    "hasty": ("openssl: TLS 1.2", "h2 3.5: an invalid preface closes"),
    "yes": (
        "openssl: TLS 1.2",
        "h2 3.5: a preface that is not followed by SETTINGS",
        "h2 4.1: ",
        "h2 6.5.2: an unknown setting is ignored",
        "h2 6.7: PING is answered with the same payload",
        "h2 6.7: an acknowledgment of no PING is not answered",
        "h2 7: RST_STREAM with an unknown code",
        "h2 8.1.2.1: a pseudo-header in trailers",
        "abuse: 20,000 SETTINGS",
        "abuse: 100,000 P",
        "abuse: of two million PING",
    )
}

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """One of the three, on a port of its own, in the clear or with TLS. Stands in a world as its gateway does."""

    def __init__(self, kind, tls=None):
        self.kind, self.context, self.program = kind, None, None
        self.scheme, self.ca, self.key = "https" if tls else "http", tls and tls[0], "no-such-key"
        if tls:
            self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.context.load_cert_chain(*tls)
            self.context.set_alpn_protocols(["h2", "http/1.1"])
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.listener.getsockname()[1]
        self.process = self
        threading.Thread(target=self._accept, daemon=True).start()

    curl = worlds.Gateway.curl

    @staticmethod
    def is_alive():
        return True

    @staticmethod
    def cpu_seconds():
        return 0

    def _accept(self):
        while True:
            stream, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        try:
            if self.context:
                stream = self.context.wrap_socket(stream, server_side=True)
            with stream:
                self._converse(stream)
        except OSError:
            pass

    def _converse(self, stream):
        come = b""
        while len(come) < len(PREFACE) and PREFACE.startswith(come):
            come += self._more(stream)
        if come.startswith(PREFACE):
            self._http2(stream, come[len(PREFACE) :])
        while self.kind != "hasty":
            if self.kind == "yes" and b"\r\n\r\n" in come:
                stream.sendall(OK * come.count(b"\r\n\r\n"))
                come = come[-3:]
            come += self._more(stream)

    @staticmethod
    def _more(stream):
        if not (piece := stream.recv(1 << 16)):
            raise EOFError
        return piece

    def _http2(self, stream, come):
        def frame(kind, flags, number=0, payload=b""):
            head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", number)
            stream.sendall(head + payload)

        frame(SETTINGS, 0)
        is_shaken = False
        while not (is_shaken and self.kind == "hasty"):
            while len(come) < 9 or len(come) < 9 + int.from_bytes(come[:3], "big"):
                come += self._more(stream)
            length, kind, flags = int.from_bytes(come[:3], "big"), come[3], come[4]
            number, payload = struct.unpack(">I", come[5:9])[0], come[9 : 9 + length]
            come = come[9 + length :]
            is_yes = self.kind == "yes"
            if kind == SETTINGS and not flags & ACK and (is_yes or not is_shaken):
                frame(SETTINGS, ACK)
                is_shaken = True
            elif kind == PING and not flags & ACK and is_yes:
                frame(PING, ACK, 0, payload)
            elif kind in (DATA, HEADERS) and flags & END_STREAM and is_yes:
                # `:status: 200`, of HPACK's static table.
                frame(HEADERS, END_HEADERS, number, b"\x88")
                frame(DATA, END_STREAM, number, b"ok")


class World(worlds.World):
    """A world with one of these servers for its gateways. Its upstreams are real, and nobody asks them."""

    def __init__(self, kind, folder):
        self.folder, self.others = folder, []
        self.ports = {name: harness.free_port() for name in worlds.TENANTS}
        self.upstream, self.h2_upstream = Upstream(self.ports["http"]), H2Upstream(self.ports["h2c"])
        self.clear = Server(kind)
        self._tls = Server(kind, self._certificate())


def is_judged_rightly(kind, name, outcome):
    """Whether a check has an outcome that it may have against such a server."""
    return outcome == "FAIL" or name.startswith(FULFILLED[kind])


def main(folder, checks):
    """Gives the number of checks that were not judged rightly."""
    wrong = []
    # A failing TLS handshake is what is looked for.
    threading.excepthook = lambda _: None
    for kind in ("mute", "hasty", "yes"):
        place = os.path.join(folder, kind)
        os.mkdir(place)
        world = World(kind, place)
        with ThreadPoolExecutor(16) as pool:
            outcomes = list(pool.map(lambda one: harness.outcome_of(*one, world), checks))  # noqa: B023
        world.stop()
        for (name, _), (outcome, note) in zip(checks, outcomes):
            if os.environ.get("TRACE"):
                print(f"{kind}: {outcome:5} {name}: {note}", file=sys.stderr)
            if not is_judged_rightly(kind, name, outcome):
                wrong.append(name)
                print(f"WRONG {name}: {outcome} against the server that is {kind}: {note}", flush=True)
    print(f"{len(checks)} checks against three servers that keep no promise: {len(wrong)} judged wrongly")
    return len(wrong)
