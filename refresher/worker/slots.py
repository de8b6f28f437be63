"""Bounds on the slots that one query holds at a time on a worker node, over all processes of its pool.

::

    message ──▶ a slot of its query? ──▶ acquire ──▶ load ──▶ commit       the slot is released, however it ends
                    └─ none soon: back into the queue with a pause; no lease, no attempt, no slot is held

A slot is a byte of an unnamed file, which the main process makes before it forks its pool, and which the loading
process locks. The kernel releases a process's locks at its end, even by ``kill -9``. File locks belong to processes, so
threads of one process exclude each other with a set.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from api_client.protocol.messages import RefreshItem
from refresher.flow.outcome import Outcome
from refresher.flow.ports import WorkerEvents
from refresher.flow.put_back import PutBack
from refresher.queries import MAX_SLOTS, Registry

NO_SLOT: Final = "no_slot"
POLL_SECONDS: Final = 0.002
WAIT_SECONDS: Final = 1.0
"""Wait for a slot while loads of its query begin, so that they run one after another without a pause. If none has begun
for that time, they are slow or hang, and a waiting message would keep a process from other queries."""
_BEGUN_PLACES: Final = 4_096
_DOUBLE_BYTES: Final = 8


class NodeSlots:
    """The slots of a worker node, made before its pool is forked and used by all its processes and threads."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._file = -1
        # The start of the load in each slot, by CLOCK_MONOTONIC, which all processes share. Slots may share a place, as
        # it only decides whether to wait.
        self._begun = memoryview(mmap.mmap(-1, _BEGUN_PLACES * _DOUBLE_BYTES)).cast("d")
        self._lock = threading.Lock()
        self._held: defaultdict[str, set[int]] = defaultdict(set)

    def open(self, count: int) -> None:
        """Make the file that the pool's processes share; until then no query is bounded.

        Args:
            count: the number of tasks that the node runs at a time.
        """
        self._count = count
        if self._file < 0:
            self._file = _file_without_name()

    def bound(self, slots: int | None) -> int | None:
        """Return how many slots a query with this own bound may hold, or None for all."""
        if self._count is None:
            return None
        bound = max(1, self._count - 1) if slots is None else slots
        return bound if bound < self._count else None

    def acquire(self, query: str, bound: int, now_seconds: float) -> int | None:
        """Take one of the ``bound`` slots of ``query`` from ``now_seconds`` on; return it, or None if all are taken."""
        first = _first_slot(query)
        with self._lock:
            held = self._held[query]
            for number in range(bound):
                if number not in held and self._try_lock(first + number):
                    held.add(number)
                    self._begun[(first + number) % _BEGUN_PLACES] = now_seconds
                    return first + number
        return None

    def last_begun_seconds(self, query: str, bound: int) -> float:
        """Return the start of the newest load that holds a slot of ``query``."""
        first = _first_slot(query)
        return max(self._begun[(first + number) % _BEGUN_PLACES] for number in range(bound))

    def release(self, query: str, slot: int) -> None:
        """Free a slot that `acquire` returned."""
        with self._lock:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, slot)
            self._held[query].discard(slot % MAX_SLOTS)

    def _try_lock(self, at: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except (BlockingIOError, PermissionError):
            return False
        return True


class QuerySlots:
    """The slots that one process holds. Thread-safe.

    Args:
        node: the node's slots.
        queries: the registered queries, with their bounds.
        events: hooks for items that are put back.
        sleep, monotonic: the clock.
    """

    def __init__(
        self,
        node: NodeSlots,
        queries: Registry,
        events: WorkerEvents,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._queries = node, queries
        self._sleep, self._monotonic = sleep, monotonic
        self._put_back = PutBack(NO_SLOT, events)

    @contextmanager
    def hold(self, items: Sequence[RefreshItem]) -> Iterator[list[Outcome]]:
        """Hold a slot for items of one query; the block gets their outcomes if no slot is free, otherwise none."""
        name = items[0].query
        query = self._queries.find(name, items[0].version)
        bound = None if query is None else self._node.bound(query.slots)
        if bound is None:
            yield []
            return
        slot = self._wait_for(name, bound)
        if slot is None:
            yield self._put_back.outcomes(items)
            return
        try:
            yield []
        finally:
            self._node.release(name, slot)

    def _wait_for(self, query: str, bound: int) -> int | None:
        began = now = self._monotonic()
        while (slot := self._node.acquire(query, bound, now)) is None:
            if now - min(began, self._node.last_begun_seconds(query, bound)) >= WAIT_SECONDS:
                return None
            self._sleep(POLL_SECONDS)
            now = self._monotonic()
        self._put_back.begin(query)
        return slot


def _first_slot(query: str) -> int:
    return int.from_bytes(hashlib.blake2b(query.encode(), digest_size=6).digest()) * MAX_SLOTS


def _file_without_name() -> int:
    in_memory = getattr(os, "memfd_create", None)  # only on Linux
    if in_memory is not None:
        return int(in_memory("refresher-slots"))
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
