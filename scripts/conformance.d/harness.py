"""What the checks stand on: their list, the outcome of each, processes and ports. Knows no protocol."""

import itertools
import os
import signal
import socket
import subprocess
import time
import traceback

CHECKS = []

# Known deviations: name of the check to reason. They are shown as "known" and are no failures.
KNOWN = {}


class Skip(Exception):
    """The check can't be made here."""


def check(name):
    """Registers a function of the world as a check; whatever it raises is its failure."""

    def register(function):
        CHECKS.append((name, function))
        return function

    return register


def run_all(world, parts=(), words=()):
    """Makes every check of these parts and every check whose name contains one of the words; all checks where neither
    is given. Gives the number of failures; no check at all is one."""
    counts = {"ok": 0, "known": 0, "skip": 0, "FAIL": 0}
    for name, function in CHECKS:
        is_asked_for = name.split()[0].rstrip(":") in parts or any(word in name for word in words)
        if (parts or words) and not is_asked_for:
            continue
        begun = time.monotonic()
        try:
            note = function(world) or ""
            outcome = "ok"
        except Skip as why:
            outcome, note = "skip", str(why)
        except BaseException as error:  # noqa: BLE001  # also what a client library raises on purpose
            if isinstance(error, KeyboardInterrupt):
                raise
            outcome, note = "FAIL", f"{type(error).__name__}: {error}".splitlines()[0][:300]
            if os.environ.get("TRACE"):
                traceback.print_exc()
        if outcome == "FAIL" and name in KNOWN:
            outcome, note = "known", f"{KNOWN[name]} ({note})"
        if not world.is_alive():
            outcome, note = "FAIL", "the gateway's process has ended; " + note
        counts[outcome] += 1
        took = time.monotonic() - begun
        print(f"{outcome:5} {name}{f': {note}' if note else ''} [{took:.1f} s]", flush=True)
        if not world.is_alive():
            break
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), flush=True)
    return counts["FAIL"] if any(counts.values()) else 1


# Below the ports that the system gives to connections, so that none is given away before it is listened on.
PORTS = itertools.count(10_000 + os.getpid() * 97 % 20_000)


def free_port():
    """A port of loopback that nobody listens on, handed out once."""
    for port in PORTS:
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")


def until(what, look, within=60):
    """Waits until `look` gives something true."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        seen = look()
        if seen:
            return seen
        time.sleep(0.01)
    raise AssertionError(f"not within {within} s: {what}")


def run(arguments, stdin=None, timeout=60):
    """Runs a program to its end; gives its status and what it wrote to both outputs."""
    done = subprocess.run(arguments, input=stdin, capture_output=True, timeout=timeout, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


class Process:
    """A program that is stopped by its process id."""

    def __init__(self, arguments, log, env=None):
        self.log_path = log
        with open(log, "wb") as out:
            self.child = subprocess.Popen(
                arguments, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}
            )

    @property
    def pid(self):
        return self.child.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as text:
            return text.read()

    def is_alive(self):
        return self.child.poll() is None

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def hang_up(self):
        self.child.send_signal(signal.SIGHUP)

    def stop(self):
        if self.is_alive():
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


def equal(seen, expected, what="value"):
    """Fails when two things differ, and shows both."""
    if seen != expected:
        raise AssertionError(f"{what} is {seen!r}, not {expected!r}")


def holds(condition, message):
    """Fails with a message when a condition does not hold."""
    if not condition:
        raise AssertionError(message)
