"""Chores of a worker's main process in Redis, every few seconds, on a thread for each kind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final

from redis.exceptions import RedisError

from api_client.errors import CacheUnavailable
from refresher.ops.forks import fork_gate
from refresher.worker.redis_link import RetryingLink

log: Final = logging.getLogger(__name__)


class Periodic:
    """Acts every ``interval_seconds`` on a thread, from `start` to `stop`.

    Args:
        what: as a log says that it failed.
        redis_url: of connections of its own, made for each time: a process of the pool that is forked meanwhile must
            not use them.
        act: is given the link; what Redis refuses or does not answer is tried again the next time.
    """

    def __init__(
        self, what: str, redis_url: str, interval_seconds: float, act: Callable[[RetryingLink], object]
    ) -> None:
        self._what, self._redis_url, self._interval_seconds, self._act = what, redis_url, interval_seconds, act
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin, once the worker has forked its pool."""
        self._stopped.clear()
        threading.Thread(target=self._run, name=self._what, daemon=True).start()

    def stop(self) -> None:
        """End; what is being done is finished."""
        self._stopped.set()

    def _run(self) -> None:
        failed: type[Exception] | None = None
        while not self._stopped.is_set():
            try:
                with fork_gate.at_work(), closing(RetryingLink(self._redis_url)) as link:
                    self._act(link)
                failed = None
            except Exception as error:
                # Whatever it met may be gone the next time; a thread that ended would be missing until a restart.
                if failed is not type(error):
                    is_known = isinstance(error, CacheUnavailable | RedisError)
                    log.warning("could not %s (%s); retrying", self._what, error, exc_info=not is_known)
                failed = type(error)
            self._stopped.wait(self._interval_seconds)
