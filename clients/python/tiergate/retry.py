"""Waiting before another try."""

from __future__ import annotations

import random

from . import errors

#: Refusals of a service or gateway that did nothing yet.
REFUSED_FOR_NOW = (errors.RateLimited, errors.RpcError, errors.Overloaded)


class Patience:
    """Counts the tries of one call. `max_wait` is in seconds, of all waits together."""

    def __init__(self, retries: int, max_wait: float) -> None:
        self._retries = retries
        self._left = max_wait
        self._step = 1.0

    def wait(self, retry_after: int | None) -> float | None:
        """Returns the seconds to wait before the next try, or `None` if the call is to fail."""
        wait = retry_after or self._step * random.uniform(0.5, 1)
        if self._retries == 0 or wait > self._left:
            return None
        self._retries, self._left, self._step = self._retries - 1, self._left - wait, self._step * 2
        return wait
