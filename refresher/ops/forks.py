"""Forks of a worker's main process, during which its threads rest.

A lock that a thread holds at a fork stays locked in the child, where that thread does not exist. It may be a lock of
kombu's that the child needs to start: the pool would kill the child after four seconds, or a shutdown wait for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MAX_WAIT_SECONDS: Final = 1.0


class ForkGate:
    """Makes a fork wait until no thread is at work, and threads wait while a process is forked.

    Args:
        max_wait_seconds: the longest wait of a fork. Work on a server that does not answer may take longer, but the
            forking loop has messages to read, so it forks then.
    """

    def __init__(self, max_wait_seconds: float = MAX_WAIT_SECONDS) -> None:
        self._max_wait_seconds = max_wait_seconds
        self._make()

    def _make(self) -> None:
        self._changed = threading.Condition()
        self._at_work = 0

    @property
    def is_at_work(self) -> bool:
        """True while any thread is at work."""
        return self._at_work > 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold up forks during the block. Forks are rare and short, so this hardly waits."""
        with self._changed:
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def guards(self, act: Callable[P, R]) -> Callable[P, R]:
        """Wrap ``act`` as work that holds up forks."""

        def work(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.at_work():
                return act(*args, **kwargs)

        return work

    def register(self) -> None:
        """Apply to each fork of this process from now on."""
        os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._make)

    def _close(self) -> None:
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._at_work, self._max_wait_seconds)

    def _open(self) -> None:
        self._changed.release()


fork_gate: Final = ForkGate()
"""The gate of this process."""
fork_gate.register()
