"""Checks of the gateway with clients and servers that others have written: main.py PROGRAM FOLDER [PART OF A NAME]"""

import importlib
import sys

import harness
from world import World

# Each registers its checks, in this order.
for module in (
    "http1",
    "http2",
    "http2_flow",
    "http2_messages",
    "tools",
    "upstreams_h2",
    "grpc_calls",
    "websocket",
    "streams",
    "abuse",
):
    importlib.import_module(module)


def main():
    program, folder = sys.argv[1:3]
    world = World(program, folder)
    if world.tls_problem:
        print(world.tls_problem)
    try:
        return harness.run_all(world, *sys.argv[3:4])
    finally:
        world.stop()


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
