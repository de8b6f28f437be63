"""Periodic chores of a worker's main process, each on its own thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final, TypeAlias

from redis.exceptions import RedisError

from api_client.errors import CacheUnavailable
from refresher.ops.forks import fork_gate
from refresher.worker.redis_link import RetryingLink

log: Final = logging.getLogger(__name__)

Act: TypeAlias = Callable[[threading.Event], object]
"""Does a chore; a long one ends when the event is set."""


class Periodic:
    """Acts every ``interval_seconds`` on a thread, from `start` to `stop`.

    Args:
        what: the chore's name in logs, after "could not".
        interval_seconds: the pause between two runs.
        act: the chore; after a failure it is tried again the next time.
        expected: errors that are logged without a traceback.
    """

    def __init__(
        self,
        what: str,
        interval_seconds: float,
        act: Act,
        *,
        expected: tuple[type[Exception], ...] = (CacheUnavailable, RedisError),
    ) -> None:
        self._what, self._interval_seconds, self._act, self._expected = what, interval_seconds, act, expected
        self._stopped = threading.Event()
        self._is_stopping = False

    def start(self) -> None:
        """Start, once the worker has forked its pool."""
        self._stopped = threading.Event()
        self._is_stopping = False
        threading.Thread(target=self._run, name=self._what, daemon=True).start()

    def stop(self) -> None:
        """End, finishing the current run. May be called within itself, as by a second SIGTERM."""
        if not self._is_stopping:  # otherwise the lock of `set`, which is not reentrant, is held
            self._is_stopping = True
            self._stopped.set()

    def _run(self) -> None:
        failure = ""
        while not self._stopped.is_set():
            try:
                self._act(self._stopped)
                failure = ""
            except Exception as error:
                # The cause may be gone the next time, while an ended thread would be missing until a restart.
                if failure != str(error):
                    is_expected = isinstance(error, self._expected)
                    log.warning("could not %s (%s); retrying", self._what, error, exc_info=not is_expected)
                failure = str(error)
            self._stopped.wait(self._interval_seconds)


def in_redis(url: str, act: Callable[[RetryingLink], object]) -> Act:
    """Return a chore in Redis over new connections each time, which a forked process must not use."""

    def act_over_link(_: threading.Event) -> None:
        with fork_gate.at_work(), closing(RetryingLink(url)) as link:
            act(link)

    return act_over_link
