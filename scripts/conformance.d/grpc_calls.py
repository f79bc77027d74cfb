"""gRPC: grpcio's client through the gateway to grpcio's server, which the gateway reaches with h2c."""

import queue
import threading
import time
from concurrent import futures

import grpc

from harness import check, equal, holds, seconds

HOST = "grpc.example"


class Server(grpc.GenericRpcHandler):
    """Methods by the last part of their name; messages are bytes."""

    def __init__(self):
        self.metadata = {}
        self.cancelled = threading.Event()

    def service(self, call):
        kind = call.method.rsplit("/", 1)[-1]
        self.metadata = dict(call.invocation_metadata)
        unary = {"Echo": self.echo, "Fail": self.fail, "Slow": self.slow}
        if kind in unary:
            return grpc.unary_unary_rpc_method_handler(unary[kind])
        if kind in ("Count", "Half"):
            return grpc.unary_stream_rpc_method_handler(self.count if kind == "Count" else self.half)
        if kind == "Sum":
            return grpc.stream_unary_rpc_method_handler(lambda messages, _: str(sum(map(len, messages))).encode())
        if kind == "Talk":
            return grpc.stream_stream_rpc_method_handler(lambda messages, _: (b"re: " + m for m in messages))
        return None

    @staticmethod
    def echo(message, context):
        context.send_initial_metadata((("first", "1"),))
        context.set_trailing_metadata((("last-bin", b"\0\xff"), ("last", "2")))
        return message

    @staticmethod
    def fail(_message, context):
        context.set_trailing_metadata((("why", "none"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "nobody, and ünïcode")

    def slow(self, _message, context):
        context.add_callback(self.cancelled.set)
        self.cancelled.wait(5)
        return b"late"

    @staticmethod
    def count(message, _context):
        for number in range(int(message)):
            yield str(number).encode()

    @staticmethod
    def half(_message, context):
        yield b"one"
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "after one")


def backend(world):
    """The server, started by the first check that needs it."""
    if not hasattr(world, "grpc"):
        world.grpc = Server()
        server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", -1)])
        server.add_generic_rpc_handlers((world.grpc,))
        server.add_insecure_port(f"127.0.0.1:{world.ports['grpc']}")
        server.start()
        world.others.append(type("Stop", (), {"stop": staticmethod(lambda: server.stop(None).wait())}))
    return world.grpc


def channels(world):
    """The way to each gateway, by name."""
    backend(world)
    options = [("grpc.default_authority", HOST), ("grpc.max_receive_message_length", -1)]
    yield "clear", grpc.insecure_channel(f"127.0.0.1:{world.clear.port}", options)
    with open(world.tls.ca, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    options.append(("grpc.ssl_target_name_override", HOST))
    yield "TLS", grpc.secure_channel(f"127.0.0.1:{world.tls.port}", credentials, options)


def error_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("it succeeded")


def each(title):
    """A check over each channel."""

    def register(function):
        @check(f"grpc: {title}")
        def _made(world):
            names = []
            for name, channel in channels(world):
                with channel:
                    function(world, channel)
                names.append(name)
            return " and ".join(names)

        return function

    return register


@each("unary, with metadata before and after")
def _unary(_world, channel):
    answer, call = channel.unary_unary("/open.Test/Echo").with_call(b"hello", timeout=seconds(10))
    equal(answer, b"hello", "answer")
    equal(dict(call.initial_metadata()).get("first"), "1", "initial metadata")
    trailing = dict(call.trailing_metadata())
    equal((trailing.get("last"), trailing.get("last-bin")), ("2", b"\0\xff"), "trailing metadata")


@each("unary of 3 MB both ways, and of nothing")
def _large(_world, channel):
    for message in (b"x" * 3_000_000, b""):
        equal(channel.unary_unary("/open.Test/Echo")(message, timeout=seconds(20)), message, "answer")


@each("server streaming, 1,000 messages in order")
def _server_streaming(_world, channel):
    answers = list(channel.unary_stream("/open.Test/Count")(b"1000", timeout=seconds(20)))
    equal(answers, [str(number).encode() for number in range(1000)], "answers")


@each("client streaming, 1,000 messages")
def _client_streaming(_world, channel):
    messages = (b"x" * (number % 7) for number in range(1000))
    equal(
        channel.stream_unary("/open.Test/Sum")(messages, timeout=seconds(20)),
        str(sum(n % 7 for n in range(1000))).encode(),
        "sum",
    )


@each("bidirectional streaming, each answer before the next message is sent")
def _talk(_world, channel):
    to_send = queue.Queue()
    answers = channel.stream_stream("/open.Test/Talk")(iter(to_send.get, None), timeout=seconds(20))
    for number in range(50):
        to_send.put(str(number).encode())
        equal(next(answers), b"re: " + str(number).encode(), "answer")
    to_send.put(None)
    equal(list(answers), [], "rest")


@each("an error status with its message and trailers")
def _fail(_world, channel):
    error = error_of(lambda: channel.unary_unary("/open.Test/Fail")(b"", timeout=seconds(10)))
    equal((error.code(), error.details()), (grpc.StatusCode.NOT_FOUND, "nobody, and ünïcode"), "status")
    equal(dict(error.trailing_metadata()).get("why"), "none", "trailing metadata")


@each("an error status after messages")
def _half(_world, channel):
    seen = []

    def call():
        for message in channel.unary_stream("/open.Test/Half")(b"", timeout=seconds(10)):
            seen.append(message)

    error = error_of(call)
    equal((seen, error.code()), ([b"one"], grpc.StatusCode.RESOURCE_EXHAUSTED), "messages and status")


@each("an unknown method is the server's UNIMPLEMENTED")
def _unknown(_world, channel):
    error = error_of(lambda: channel.unary_unary("/open.Test/Nothing")(b"", timeout=seconds(10)))
    equal((error.code(), error.details()), (grpc.StatusCode.UNIMPLEMENTED, "Method not found!"), "status")


@each("a deadline ends the call at both ends")
def _deadline(world, channel):
    world.grpc.cancelled.clear()
    begun = time.monotonic()
    error = error_of(lambda: channel.unary_unary("/open.Test/Slow")(b"", timeout=seconds(0.5)))
    equal(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED, "status")
    holds(world.grpc.cancelled.wait(seconds(3)), "the server was not told")
    holds(time.monotonic() - begun < 3, "too late")


@each("a call that the client cancels is cancelled at the server")
def _cancel(world, channel):
    world.grpc.cancelled.clear()
    call = channel.unary_unary("/open.Test/Slow").future(b"")
    time.sleep(0.2)
    call.cancel()
    holds(world.grpc.cancelled.wait(seconds(3)), "the server was not told")


@each("metadata that begins with x-agent- does not get through, other metadata does")
def _metadata(world, channel):
    forged = (("x-agent-id", "9"), ("x_agent_tier", "9"), ("x-agent-bin", b"9"), ("other", "kept"))
    channel.unary_unary("/open.Test/Echo")(b"", metadata=forged, timeout=seconds(10))
    seen = world.grpc.metadata
    equal([name for name in seen if name.replace("_", "-").startswith("x-agent")], [], "forged metadata")
    equal(seen.get("other"), "kept", "other metadata")


@each("an agent's key admits and identity is told; the key stays behind")
def _key(world, channel):
    keys = {gateway.key for gateway in (world.clear, world.tls)}
    admitted = 0
    for key in keys:
        try:
            channel.unary_unary("/agents.Test/Echo")(
                b"", metadata=(("x-api-key", key), ("x-agent-tier", "9")), timeout=seconds(10)
            )
        except grpc.RpcError as error:
            # The other gateway's key.
            equal(error.code(), grpc.StatusCode.UNAUTHENTICATED, "status")
            continue
        admitted += 1
        seen = world.grpc.metadata
        equal((seen.get("x-agent-id"), seen.get("x-agent-tier")), ("4", "4"), "identity")
        holds(not any(key in str(value) for value in seen.values()), "the key reached the server")
    equal(admitted, 1, "keys admitted")


@each("without a key the call ends with UNAUTHENTICATED")
def _refused(_world, channel):
    error = error_of(lambda: channel.unary_unary("/agents.Test/Echo")(b"", timeout=seconds(10)))
    equal(error.code(), grpc.StatusCode.UNAUTHENTICATED, "status")


@each("a refusal has its message and details")
def _details(_world, channel):
    error = error_of(lambda: channel.unary_unary("/agents.Test/Echo")(b"", timeout=seconds(10)))
    holds("credential" in (error.details() or ""), f"message: {error.details()}")
    details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
    for part in (b"type.googleapis.com/google.rpc.ErrorInfo", b"INVALID_API_KEY", b"tiergate"):
        holds(part in details, f"{part} is not in {details}")


@each("100 calls at once on one channel")
def _many(_world, channel):
    calls = [channel.unary_unary("/open.Test/Echo").future(str(number).encode()) for number in range(100)]
    equal([call.result(seconds(20)) for call in calls], [str(number).encode() for number in range(100)], "answers")
