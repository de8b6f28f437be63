"""Forks of a worker's main process, and its threads, which rest meanwhile.

A lock that a thread holds at a fork stays locked in the child, where that thread does not exist: one of kombu, say,
that the child needs to be up. The pool would kill it after four seconds; a worker that shuts down would wait for it.
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
    """Has a fork wait until no thread is at work, and no thread begin to be while a process is forked.

    Args:
        max_wait_seconds: how long a fork waits. What works on a server that does not answer may take longer, and the
            loop that forks has messages to read; so it forks then.
    """

    def __init__(self, max_wait_seconds: float = MAX_WAIT_SECONDS) -> None:
        self._max_wait_seconds = max_wait_seconds
        self._make()

    def _make(self) -> None:
        self._changed = threading.Condition()
        self._at_work = 0

    @property
    def is_at_work(self) -> bool:
        """True while any thread is."""
        return self._at_work > 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold forks up meanwhile; they are rare, and so short that this hardly waits."""
        with self._changed:
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def guards(self, act: Callable[P, R]) -> Callable[P, R]:
        """Return ``act`` as work that holds forks up."""

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
"""This process's."""
fork_gate.register()
