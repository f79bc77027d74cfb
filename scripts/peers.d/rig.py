"""Starts and stops programs, loads them, and reads what the kernel counted of them. Knows no proxy."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

EVENTS = "instructions:u,instructions:k"
TICK_MICROS = 1_000_000 / os.sysconf("SC_CLK_TCK")


def target(root):
    """Where cargo builds."""
    return root / os.environ.get("CARGO_TARGET_DIR", "target")


def program(root):
    """The program to measure: TG_PROGRAM, or the one that was built."""
    return Path(os.environ.get("TG_PROGRAM", target(root) / "release/tiergate")).resolve()


class Rig:
    """A folder and the programs that were started; both are gone when the rig is left, for whatever reason."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="peers-"))
        self.started = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.many = min(20_000, hard)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            self.stop(process)
        if not os.environ.get("KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name, text):
        """Writes a file into the folder."""
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, name, cores, argv, port, **environment):
        """Starts a program on these cores and waits until it listens."""
        if not socket.socket().connect_ex(("127.0.0.1", port)):
            raise RuntimeError(f"another program listens at port {port}")
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen(
            ["taskset", "-c", cores, *map(str, argv)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}, start_new_session=True,
        )
        self.started.append(process)
        ended = time.monotonic() + 600
        while socket.socket().connect_ex(("127.0.0.1", port)):
            if process.poll() is not None or time.monotonic() > ended:
                raise RuntimeError(f"{name} does not start: {(self.folder / f'{name}.log').read_text()[-2000:]}")
            time.sleep(0.02)
        return process

    def stop(self, process):
        """Ends a program, and kills it if it takes long."""
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process in self.started:
            self.started.remove(process)


def family(pid):
    """A process and its children."""
    children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(each for child in children.split() for each in family(int(child)))]


def cpu_micros(pids):
    """User and kernel time of these processes so far."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) * TICK_MICROS


def resident_kib(pids):
    """Resident memory of these processes."""
    return sum(int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) for pid in pids)


def has_counters():
    """True if the processor's counters can be read: in many virtual machines they can't."""
    if not shutil.which("perf"):
        return False
    counted = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True)
    return counted.returncode == 0 and counted.stderr.split(",")[0].isdigit()


def wrk(url, script, connections, seconds, cores, counted=()):
    """One run of wrk: requests, requests/s, and user and kernel instructions of the `counted` processes.

    An answer that is not 2xx or 3xx, or an error of a socket, makes the measurement fail.
    """
    threads, counts = cores.count(",") + 1, Path(f"{script}.counts")
    watch = ["perf", "stat", "-x,", "-o", counts, "-e", EVENTS, "-p", ",".join(map(str, counted))] if counted else []
    argv = [*watch, "taskset", "-c", cores, "wrk", f"-t{threads}", f"-c{max(connections, threads)}", f"-d{seconds}s",
            "--timeout", "10s", "-s", script, url]
    out = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    requests = re.search(r"(\d+) requests in", out.stdout)
    bad = re.search(r"Non-2xx.*|Socket errors.*", out.stdout)
    if out.returncode or not requests or not int(requests[1]) or bad:
        raise RuntimeError(f"{url}: {bad[0] if bad else (out.stderr or 'no answer in time').strip()}")
    events = re.findall(r"^(\d+),", counts.read_text(), re.M) if counted else []
    user, kernel = map(int, events) if len(events) == 2 else (None, None)
    return int(requests[1]), float(re.search(r"Requests/sec:\s+([\d.]+)", out.stdout)[1]), user, kernel


def idle_connections(port, request, count):
    """Opens so many connections, each with one answered request, and keeps them."""
    opened = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request)
        if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"port {port} does not answer a request with 200")
        opened.append(connection)
    return opened


def callgrind_dump(rig, pid):
    """What callgrind has counted of a process since this was asked last."""
    subprocess.run(["callgrind_control", "-d", str(pid)], check=True, capture_output=True)
    return max(rig.folder.glob(f"callgrind.{pid}.*"), key=lambda path: path.stat().st_mtime_ns).read_text()


def instructions_in(dump):
    """The user instructions in a dump."""
    return int(re.search(r"^(?:summary|totals): (\d+)", dump, re.M)[1])


def calls_in(dump, functions):
    """How often these functions were called, by a dump. A name stands where its number is first used."""
    names, callee, calls = {}, None, 0
    for kind, number, name, count in re.findall(r"^(?:(c?fn)=\((\d+)\)(?: (.+))?|calls=(\d+).*)$", dump, re.M):
        if name:
            names[number] = name
        if kind == "cfn":
            callee = names[number]
        elif count and callee in functions:
            calls += int(count)
    return calls


def callgrind(rig, pid):
    """The user instructions of a process under callgrind since this was asked last."""
    return instructions_in(callgrind_dump(rig, pid))
