"""Checks of the gateway with clients and servers that others have written: main.py PROGRAM FOLDER [--self-test] [WORD...]"""

import importlib
import sys

import harness
import selftest
from world import World

# Modules in the order of their checks, each with the parts that its checks belong to.
MODULES = (
    ("http1", "curl openssl sockets"),
    ("http2", "h2"),
    ("http2_flow", "h2"),
    ("http2_messages", "h2"),
    ("tools", "nghttp h2load"),
    ("upstreams_h2", "h2c curl"),
    ("grpc_calls", "grpc"),
    ("websocket", "websocket"),
    ("streams", "sse mcp"),
    ("abuse", "abuse"),
)


def main():
    program, folder = sys.argv[1:3]
    is_self_test = "--self-test" in sys.argv
    words = [word for word in sys.argv[3:] if word and word != "--self-test"]
    parts = {part for _, named in MODULES for part in named.split()}
    only_parts = words and parts.issuperset(words)
    for module, named in MODULES:
        # The libraries of a part that is not asked for need not be installed.
        if not only_parts or not set(words).isdisjoint(named.split()):
            importlib.import_module(module)
    checks = harness.chosen([word for word in words if word in parts], [word for word in words if word not in parts])
    if is_self_test:
        return selftest.main(folder, checks)
    world = World(program, folder)
    try:
        return harness.run_all(world, checks)
    finally:
        world.stop()


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
