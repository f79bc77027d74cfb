"""A key in a file, and one that a process of those with the file replaces before it ends."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import errors
from .client import Tiergate, terms
from .signing import AgentId, Signer, decimal
from .version import LOGGER

#: After so long the process with a lock is dead, or a failed try may be repeated.
_LOCK_SECONDS = 60
#: A process that could not replace the key looks again after so long.
_PAUSE_SECONDS = 1.0
#: Ends a try, with both of its requests, before others take its lock for a dead one's.
_TRY_SECONDS = 45.0
#: Requests without a key wait for one so long.
_WAIT_SECONDS = 60.0
_LIFE_SECONDS_MIN = 1_200
_GRACE_SECONDS = range(120, 3_601)


def read_secret(file: Path) -> str:
    """Returns the text of a key's file. Errors don't name the file: it may be a key in the wrong place."""
    try:
        text, mode = file.read_bytes().decode("latin-1"), file.stat().st_mode
    except (OSError, ValueError) as error:
        raise ValueError(f"the key's file can't be read: {_why(error)}") from None
    if os.name == "posix" and mode & 0o044:
        LOGGER.warning("others may read the file of the API key; keep it from them: chmod 600")
    return text


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or "malformed name"


@dataclass(frozen=True)
class _Held:
    api_key: str
    #: In Unix seconds. A file with a key alone does not tell it: 0.
    ends_at: int = 0
    expires_in: int = 0

    @property
    def is_due(self) -> bool:
        return self.ends_at - time.time() < self.expires_in / 10

    @property
    def has_ended(self) -> bool:
        return 0 < self.ends_at <= time.time()


class KeptKey:
    """A key in a file, for any number of processes, in Python and TypeScript: `by_key(KeptKey(...))`.

    A process that finds less than a tenth of the key's life left takes a lock beside the file and replaces the key; the others
    read the file again. If that fails, the old key stays in use, and one of them tries again after a minute. Without a file the key is
    made, which the service refuses where there is one already: then write that into the file.

    `signer` is the owner's: whoever has it may make keys. `expires_in` are the seconds of a key's life, 1,200 at least; the others
    may go on with the replaced key for `grace_seconds`, 120 to 3,600.
    """

    def __init__(
        self,
        file: str | Path,
        service: Tiergate,
        agent_id: AgentId,
        signer: Signer,
        *,
        expires_in: int,
        grace_seconds: int = 600,
        name: str | None = None,
        tenants: Sequence[str] | None = None,
        declared_endpoint: str | None = None,
    ) -> None:
        if not isinstance(file, (str, Path)) or not str(file):
            raise ValueError("the file is no name")
        if not isinstance(service, Tiergate):
            raise ValueError("the service is no Tiergate")
        terms(name=name, expires_in=expires_in, tenants=tenants, grace_seconds=grace_seconds)
        if expires_in < _LIFE_SECONDS_MIN:
            raise ValueError(f"expires_in is less than {_LIFE_SECONDS_MIN} seconds")
        if grace_seconds not in _GRACE_SECONDS:
            raise ValueError("grace_seconds is not within 120 and 3600")
        self._file, self._service = Path(file), service
        self._agent_id, self._signer = decimal(agent_id), signer
        self._expires_in, self._grace_seconds = expires_in, grace_seconds
        self._name, self._tenants, self._declared_endpoint = name, tenants, declared_endpoint
        self._held: _Held | None = None
        #: Tells one file of this name from the next.
        self._stamp: object = None
        self._reading, self._replacing = threading.Lock(), threading.Lock()
        self._next_try = 0.0

    def current(self, refused: str | None = None) -> str:
        """Returns the key for the next request. `refused` is one that the gateway has refused. May block."""
        end = time.monotonic() + _WAIT_SECONDS
        while True:
            held = self._look()
            if held is not None and not held.is_due:
                return held.api_key
            if held is not None and not held.has_ended:
                # The file has a key that is refused where its process died before it wrote the next one.
                if held.api_key == refused:
                    self._try()
                elif time.monotonic() >= self._next_try:
                    self._next_try = time.monotonic() + _PAUSE_SECONDS
                    # Python waits for it before it ends: a key that was made is written.
                    threading.Thread(target=self._try, name="tiergate-kept-key").start()
                return (self._look() or held).api_key
            if self._replace():
                continue
            if time.monotonic() > end:
                raise _not_replaced("another process has not replaced it in time")
            time.sleep(0.1)

    def _look(self) -> _Held | None:
        """Reads the file if it is another one."""
        with self._reading:
            try:
                found = self._file.stat()
                stamp: object = (found.st_ino, found.st_mtime_ns, found.st_size)
            except FileNotFoundError:
                stamp = None
            except (OSError, ValueError) as error:
                raise ValueError(f"the key's file can't be read: {_why(error)}") from None
            if stamp != self._stamp:
                self._held = None if stamp is None else _read(read_secret(self._file))
                self._stamp = stamp
            return self._held

    def _try(self) -> None:
        """Tries to replace a key that is good for a while yet."""
        try:
            self._replace()
        except Exception as error:
            LOGGER.warning("the agent's key was not replaced, and is tried again: %s", error)

    def _replace(self) -> bool:
        """Replaces the key. False if another process does that now."""
        with self._replacing:
            lock = self._take_lock()
            if lock is None:
                return False
            # Another process may have replaced it since.
            held = self._look()
            if held is None or held.is_due:
                beside = self._file.with_name(f"{self._file.name}.new-{secrets.token_hex(8)}")
                try:
                    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
                        opened.write(self._issue(held) + "\n")
                        opened.flush()
                        os.fsync(opened.fileno())
                    # Whoever took this try for a dead one's has replaced its key.
                    if self._locks()[-1:] != [lock]:
                        raise _not_replaced("another process took over")
                    beside.replace(self._file)
                except BaseException:
                    # The lock stays: no process tries again before it is old.
                    with suppress(OSError):
                        self._lock_file(lock).write_text("failed\n")
                    beside.unlink(missing_ok=True)
                    raise
            for each in self._locks():
                if each <= lock:
                    self._lock_file(each).unlink(missing_ok=True)
            return True

    def _issue(self, held: _Held | None) -> str:
        ends_at, keys = int(time.time()) + self._expires_in, self._service._bounded(_TRY_SECONDS).keys
        if held is None:
            issued = keys.generate(
                self._agent_id,
                self._signer,
                declared_endpoint=self._declared_endpoint,
                name=self._name,
                expires_in=self._expires_in,
                tenants=self._tenants,
            )
        else:
            issued = keys.rotate(
                self._agent_id,
                self._signer,
                declared_endpoint=self._declared_endpoint,
                name=self._name,
                expires_in=self._expires_in,
                tenants=self._tenants,
                grace_seconds=self._grace_seconds,
            )
        return json.dumps({"apiKey": issued.api_key, "endsAt": ends_at, "expiresIn": self._expires_in})

    def _take_lock(self) -> int | None:
        """Takes the next lock if there is none, or only old ones: one process alone can make the next."""
        last = (self._locks() or [0])[-1]
        if last > 0:
            try:
                found = self._lock_file(last).stat()
            except FileNotFoundError:
                return None
            if time.time() - found.st_mtime < _LOCK_SECONDS:
                held = self._look()
                if found.st_size > 0 and (held is None or held.has_ended):
                    raise _not_replaced("a try has failed within the last minute")
                return None
        try:
            os.close(os.open(self._lock_file(last + 1), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return None
        return last + 1

    def _locks(self) -> list[int]:
        """The numbers of the locks, in their order."""
        start = f"{self._file.name}.lock-"
        ends = (name[len(start) :] for name in os.listdir(self._file.parent) if name.startswith(start))
        return sorted(int(end) for end in ends if re.fullmatch("[0-9]{1,9}", end))

    def _lock_file(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.lock-{number}")


def _read(text: str) -> _Held:
    """The key and its end; or a key alone, as other programs write it."""
    if re.fullmatch(r"[!-z|~]+", text.strip()):
        return _Held(text.strip())
    # An error would quote the file.
    with suppress(ValueError, KeyError, TypeError):
        found = json.loads(text)
        held = _Held(found["apiKey"], found["endsAt"], found["expiresIn"])
        if (type(held.api_key), type(held.ends_at), type(held.expires_in)) == (str, int, int):
            return held
    raise ValueError("the key's file holds no key")


def _not_replaced(why: str) -> errors.Unreachable:
    return errors.Unreachable(f"the agent's key was not replaced: {why}")
