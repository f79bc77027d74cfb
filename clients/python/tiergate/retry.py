"""Waiting before another try."""

from __future__ import annotations

import random
from typing import Any

from . import errors
from .version import LOGGER

#: Refusals of a service or gateway that did nothing yet.
REFUSED_FOR_NOW = (errors.RateLimited, errors.RpcError, errors.Overloaded)

#: More tries or seconds are a mistake, and sockets quote a number that they can't take.
_NUMBER_MAX = 1_000_000


def check_numbers(**numbers: Any) -> None:
    """Raises ValueError that names the number that is none."""
    for name, number in numbers.items():
        if not isinstance(number, (int, float)) or not 0 <= number <= _NUMBER_MAX:
            raise ValueError(f"{name} is no number, negative or too large")


class Patience:
    """Counts the tries of one call. `max_wait` is in seconds, of all waits together."""

    def __init__(self, retries: int, max_wait: float) -> None:
        self._retries = retries
        self._left = max_wait
        self._step = 1.0
        self._tries = 1

    def wait(self, retry_after: int | None, why: object) -> float | None:
        """Returns the seconds to wait before the next try, or `None` if the call is to fail. The log has `why`."""
        wait = self._step * random.uniform(0.5, 1) if retry_after is None else retry_after
        if self._retries == 0 or wait > self._left:
            return None
        self._retries, self._left, self._step = self._retries - 1, self._left - wait, self._step * 2
        self._tries += 1
        LOGGER.warning("waiting %.1f s before try %d: %s", wait, self._tries, why)
        return wait
