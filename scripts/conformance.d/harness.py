"""What the checks stand on: their list, the outcome of each, processes and ports. Knows no protocol."""

import itertools
import os
import signal
import socket
import subprocess
import time
import traceback

CHECKS = []

# Known deviations: the check's name, why it fails, and the one message of an AssertionError that is forgiven. It is shown
# as "known" and is no failure.
KNOWN = {}

# All time limits are multiplied by this.
PATIENCE = float(os.environ.get("PATIENCE", "1"))


def seconds(limit):
    """A time limit."""
    return limit * PATIENCE


class Unmatched(Exception):
    """A part or word that no check has."""


def check(name):
    """Registers a function of the world as a check; whatever it raises is its failure."""

    def register(function):
        CHECKS.append((name, function))
        return function

    return register


def chosen(parts=(), words=()):
    """Every check of these parts and every check whose name contains one of the words; all checks where neither is given.
    A part or a word without a check is a mistake."""
    matches = [lambda name, part=part: name.split()[0].rstrip(":") == part for part in parts]
    matches += [lambda name, word=word: word in name for word in words]
    for match, asked in zip(matches, [*parts, *words]):
        if not any(match(name) for name, _ in CHECKS):
            raise Unmatched(f"no check has {asked}")
    return [one for one in CHECKS if not matches or any(match(one[0]) for match in matches)]


def outcome_of(name, function, world):
    """"ok", "known" or "FAIL", and a note."""
    try:
        outcome, note = "ok", function(world) or ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # also what a client library raises on purpose
        if os.environ.get("TRACE"):
            traceback.print_exc()
        text = (str(error).splitlines() or [""])[0]
        outcome, note = "FAIL", f"{type(error).__name__}: {text[:300]}"
        reason, forgiven = KNOWN.get(name, ("", None))
        if isinstance(error, AssertionError) and str(error) == forgiven:
            return "known", f"{reason} ({text})"
    if outcome == "ok" and name in KNOWN:
        return "FAIL", "it passes: no deviation any more"
    return outcome, note


def run_all(world, checks):
    """Makes checks. Gives the number of failures."""
    counts = {"ok": 0, "known": 0, "FAIL": 0}
    for name, function in checks:
        begun = time.monotonic()
        outcome, note = outcome_of(name, function, world)
        if not world.is_alive():
            outcome, note = "FAIL", "a gateway's process has ended; " + note
        counts[outcome] += 1
        took = time.monotonic() - begun
        print(f"{outcome:5} {name}{f': {note}' if note else ''} [{took:.1f} s]", flush=True)
        if not world.is_alive():
            break
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), flush=True)
    return counts["FAIL"]


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
    end = time.monotonic() + seconds(within)
    while time.monotonic() < end:
        seen = look()
        if seen:
            return seen
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds(within)} s: {what}")


def run(arguments, stdin=None, timeout=60):
    """Runs a program to its end; gives its status and what it wrote to both outputs."""
    done = subprocess.run(arguments, input=stdin, capture_output=True, timeout=seconds(timeout), check=False)
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
