"""WebSockets: the client and the server of the library `websockets`, through routes with and without upgrades."""

import itertools
import os
import socket
import ssl
import threading
import time

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve

from harness import check, equal, holds, seconds, until

HOST = "ws.example"
PATHS = itertools.count()


class Backend:
    """An echo that also does what it is told."""

    def __init__(self, port):
        self.headers = None
        # How each connection ended, by its path.
        self.closed = {}

        def choose(_connection, offered):
            return "echo.v1" if "echo.v1" in offered else None

        def note(_connection, request):
            self.headers = request.headers

        options = {"max_size": None, "subprotocols": ["echo.v1"], "select_subprotocol": choose, "process_request": note}
        self.server = serve(self.handle, "127.0.0.1", port, **options)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handle(self, connection):
        try:
            for message in connection:
                if message == "close":
                    connection.close(4321, "as asked")
                elif message == "ping":
                    connection.ping(b"from behind").wait(5)
                    connection.send("ponged")
                elif message == "silence":
                    time.sleep(2)
                    connection.send("at last")
                else:
                    connection.send(message)
        except ConnectionClosed:
            pass
        self.closed[connection.request.path] = (connection.close_code, connection.close_reason)

    def end_of(self, path):
        """How the connection to a path ended."""
        return until("the server is told of the end", lambda: self.closed.get(path), 5)

    def stop(self):
        self.server.shutdown()


def backend(world):
    if not hasattr(world, "ws"):
        world.ws = Backend(world.ports["ws"])
        world.others.append(world.ws)
    return world.ws


def unique():
    """A path that nobody else asks for."""
    return f"/open/echo/{next(PATHS)}"


def dial(gateway, path="/open/echo", **options):
    """A WebSocket through a gateway."""
    stream = socket.create_connection(("127.0.0.1", gateway.port), seconds(10))
    context = ssl.create_default_context(cafile=gateway.ca) if gateway.ca else None
    scheme = "wss" if context else "ws"
    options.setdefault("max_size", None)
    options.setdefault("open_timeout", seconds(10))
    options.setdefault("close_timeout", seconds(10))
    return connect(
        f"{scheme}://{HOST}{path}", sock=stream, ssl=context, server_hostname=HOST if context else None, **options
    )


def each(title):
    """A check through each gateway."""

    def register(function):
        @check(f"websocket: {title}")
        def _made(world):
            backend(world)
            names = [("clear", world.clear), ("TLS", world.tls)]
            for _, gateway in names:
                function(world, gateway)
            return " and ".join(name for name, _ in names)

        return function

    return register


@each("text and binary are echoed, empty to 4 MiB")
def _echo(_world, gateway):
    with dial(gateway) as connection:
        for message in ("", "hello", "ünïcode" * 1000, b"", b"\0\xff", os.urandom(4 << 20), "x" * (4 << 20)):
            connection.send(message)
            equal(connection.recv(seconds(20)), message, "echo")


@each("a message in fragments, without compression")
def _fragments(_world, gateway):
    with dial(gateway, compression=None) as connection:
        connection.send(iter(["one ", "two ", "three"]))
        equal(connection.recv(seconds(10)), "one two three", "echo")


@each("1,000 small messages in a row")
def _many(_world, gateway):
    with dial(gateway) as connection:
        for number in range(1000):
            connection.send(str(number))
        equal([connection.recv(seconds(10)) for _ in range(1000)], [str(number) for number in range(1000)], "echoes")


@each("ping and pong, both ways")
def _ping(_world, gateway):
    with dial(gateway) as connection:
        holds(connection.ping(b"from the front").wait(seconds(5)), "no pong")
        connection.send("ping")
        equal(connection.recv(seconds(10)), "ponged", "answer")


@each("a silent connection stays, and speaks later")
def _silence(_world, gateway):
    with dial(gateway) as connection:
        connection.send("silence")
        equal(connection.recv(seconds(10)), "at last", "answer")


@each("the client's close code reaches the server, the server's the client")
def _close(world, gateway):
    for code, reason in ((1000, ""), (1001, "away"), (3000, "mine"), (4999, "x" * 120)):
        path = unique()
        dial(gateway, path).close(code, reason)
        equal(world.ws.end_of(path), (code, reason), "what the server saw")
    connection = dial(gateway)
    connection.send("close")
    try:
        connection.recv(seconds(10))
    except ConnectionClosed as closed:
        equal((closed.rcvd.code, closed.rcvd.reason), (4321, "as asked"), "what the client saw")
    else:
        raise AssertionError("it was not closed")


@each("a client that is gone is noticed by the server")
def _gone(world, gateway):
    path = unique()
    connection = dial(gateway, path)
    connection.send("hello")
    connection.recv(seconds(10))
    connection.socket.shutdown(socket.SHUT_RDWR)
    world.ws.end_of(path)


@each("a subprotocol and compression are negotiated end to end")
def _negotiated(_world, gateway):
    with dial(gateway, subprotocols=["echo.v1", "other"]) as connection:
        equal(connection.subprotocol, "echo.v1", "subprotocol")
        extensions = connection.response.headers.get("Sec-WebSocket-Extensions", "")
        holds("permessage-deflate" in extensions, f"extensions: {extensions!r}")


@each("a key admits where the route is for agents, identity is told, forged identity is not")
def _agents(world, gateway):
    headers = {"X-API-Key": gateway.key, "X_Agent_Tier": "9", "X-Agent-Role": "root"}
    with dial(gateway, "/agents/echo", additional_headers=headers) as connection:
        connection.send("hello")
        equal(connection.recv(seconds(10)), "hello", "echo")
    seen = {name.lower(): value for name, value in world.ws.headers.raw_items()}
    equal((seen.get("x-agent-id"), seen.get("x-agent-tier")), ("4", "4"), "identity")
    ours = [name for name in seen if name.replace("_", "-").startswith("x-agent")]
    holds(not {"x_agent_tier", "x-agent-role", "x-api-key"} & set(seen), f"{ours} came through")


def refused(gateway, path, status):
    try:
        dial(gateway, path).close()
    except InvalidStatus as error:
        equal(error.response.status_code, status, "status")
        return
    raise AssertionError("it was upgraded")


@each("without a key the handshake is refused with 401")
def _no_key(_world, gateway):
    refused(gateway, "/agents/echo", 401)


@each("a route without upgrades makes no WebSocket")
def _no_upgrade(world, gateway):
    world.ws.headers = None
    # The status with which the server answers a plain request.
    refused(gateway, "/plain/echo", 426)
    holds(world.ws.headers is not None, "the upstream saw no request")
    holds("Upgrade" not in world.ws.headers, "the upstream saw the upgrade")
