"""What `scripts/measure-redis-admissions` runs: WORK ROUNDS BEFORE AFTER, where no commit means the working tree."""

import os
import socket
import statistics
import subprocess
import sys
import time

SCRIPTS = "src/store/redis/scripts/"
PORT = 16381
AGENTS = 100
LIMIT = 2_700
WIDTH_MICROS = 60_000_000
STEP_MICROS = -(-WIDTH_MICROS // LIMIT)
CALLS = 20_000
# Commands that are sent at once, and how many may be unanswered.
CHUNK = 250
UNANSWERED = 4 * CHUNK
# An answer is an array of two numbers: 0, which means admitted, and how many remain.
LINES = 3
DIGEST = "d" * 32

# Asks Redis for the time as the real clock does, and then counts with the caller's, so that every window stays full.
CLOCK = """
local function clock()
  redis.call('TIME')
  return tonumber(ARGV[#ARGV])
end
"""


def file_of(commit, name):
    path = SCRIPTS + name
    if commit:
        shown = subprocess.run(["git", "show", f"{commit}:{path}"], capture_output=True, text=True)
        if shown.returncode == 0:
            return shown.stdout
    with open(path) as file:
        return file.read()


def code_of(commit):
    parts = [file_of(commit, name) for name in ("answers.lua", "window.lua", "admit_by_key.lua")]
    return parts[0] + CLOCK + parts[1] + parts[2]


def command(*words):
    words = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Redis:
    """A server on core 0, and one connection to it."""

    def __init__(self, work):
        program = os.environ.get("TG_REDIS_SERVER", "redis-server")
        arguments = ["--bind", "127.0.0.1", "--port", str(PORT), "--save", "", "--dir", work]
        with open(f"{work}/log", "w") as log:
            self.process = subprocess.Popen(["taskset", "-c", "0", program, *arguments], stdout=log)
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", PORT))
                break
            except ConnectionRefusedError:
                if self.process.poll() is not None:
                    sys.exit(f"{program} has ended; is port {PORT} in use?")
                time.sleep(0.02)

    def ask(self, *words):
        self.socket.sendall(command(*words))
        answer = b""
        while True:
            answer += self.socket.recv(1 << 20)
            line, _, rest = answer.partition(b"\r\n")
            if line.startswith(b"-"):
                sys.exit(f"{words[0]}: {line.decode()}")
            if line.startswith(b"$") and len(rest) == int(line[1:]) + 2:
                return rest.decode().strip()
            if line.startswith((b"+", b":")) and answer.endswith(b"\r\n"):
                return line.decode()

    def fields(self, section):
        lines = self.ask("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu_seconds(self):
        fields = self.fields("CPU")
        return float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])

    def run(self, chunks):
        """Sends all chunks, and says how many were admitted."""
        sent, lines, answers = 0, 0, []
        while lines < LINES * CHUNK * len(chunks):
            while sent < len(chunks) and sent * CHUNK - lines // LINES < UNANSWERED:
                self.socket.sendall(chunks[sent])
                sent += 1
            answers.append(self.socket.recv(1 << 20))
            lines += answers[-1].count(b"\n")
            if b"-" in answers[-1]:
                sys.exit(answers[-1].decode())
        return b"".join(answers).count(b"*2\r\n:0\r\n")


class Contender:
    """The scripts of one commit, with windows of their own."""

    def __init__(self, redis, name, commit):
        self.redis, self.name = redis, name
        self.hash = redis.ask("SCRIPT", "LOAD", code_of(commit))
        self.time, self.number = 1_700_000_000_123_456, 0
        for agent in range(AGENTS):
            redis.ask("SET", f"{name}k{agent}", DIGEST)
        redis.run(self.calls(AGENTS * LIMIT))
        self.per_second, self.per_cpu_second, self.micros, self.commands = [], [], [], {}

    def calls(self, count):
        chunks = []
        for _ in range(count // CHUNK):
            chunk = []
            for _ in range(CHUNK):
                agent = self.number % AGENTS
                self.time += STEP_MICROS if agent == 0 else 0
                self.number += 1
                keys = f"{self.name}k{agent}", f"{self.name}w{agent}"
                chunk.append(command("EVALSHA", self.hash, 2, *keys, DIGEST, LIMIT, WIDTH_MICROS, self.time))
            chunks.append(b"".join(chunk))
        return chunks

    def round(self):
        chunks = self.calls(CALLS)
        self.redis.ask("CONFIG", "RESETSTAT")
        cpu, begun = self.redis.cpu_seconds(), time.perf_counter()
        admitted = self.redis.run(chunks)
        took, cpu = time.perf_counter() - begun, self.redis.cpu_seconds() - cpu
        if admitted != CALLS:
            sys.exit(f"{self.name}: {admitted} of {CALLS} were admitted")
        self.per_second.append(CALLS / took)
        self.per_cpu_second.append(CALLS / cpu)
        self.commands = {}
        for name, value in self.redis.fields("COMMANDSTATS").items():
            name, fields = name.removeprefix("cmdstat_"), dict(pair.split("=") for pair in value.split(","))
            if name == "evalsha":
                self.micros.append(float(fields["usec_per_call"]))
            elif int(fields["calls"]) >= CALLS // 10_000 and name not in ("info", "config", "config|resetstat"):
                self.commands[name] = int(fields["calls"]) / CALLS


def main(work, rounds, before, after):
    redis = Redis(work)
    try:
        contenders = [Contender(redis, "before", before), Contender(redis, "after", after)]
        for _ in range(rounds):
            for contender in contenders:
                contender.round()
    finally:
        redis.process.kill()
        redis.process.wait()
    middle = statistics.median
    for contender, commit in zip(contenders, (before, after)):
        print(
            f"{commit or 'working tree'}: {middle(contender.per_second):.0f} admissions/s,"
            f" {middle(contender.per_cpu_second):.0f} a second of Redis' own,"
            f" {middle(contender.micros):.2f} us in the script,"
            f" {sum(contender.commands.values()):.2f} commands:",
            ", ".join(f"{name} {count:.2f}" for name, count in sorted(contender.commands.items())),
        )
    one, other = contenders
    ratio = lambda before, after: middle(b / a for a, b in zip(before, after))
    print(
        f"ratio, median of {rounds} rounds: {ratio(one.per_second, other.per_second):.2f} by time,"
        f" {ratio(one.per_cpu_second, other.per_cpu_second):.2f} by Redis' own time"
    )


main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
