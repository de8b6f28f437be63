"""Interface of a competitor: opened on servers, then read by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.apparatus.entries import Value, rows_of
from benchmarks.apparatus.servers import Servers


@dataclass(frozen=True, slots=True)
class Dataset:
    """Servers and numbers of a race; each of ``numbers`` has a value and can be read."""

    servers: Servers
    numbers: Sequence[int]


class Opened(NamedTuple):
    """An opened cache with a value for every number.

    Attributes:
        read: reads one number; the result is awaitable if the competitor is async.
        expected: returns the right result of a read of a number.
        note: a note for readers of the table.
    """

    read: Callable[[int], Any]
    expected: Callable[[int], Value] = rows_of
    note: str = ""


@dataclass(frozen=True, slots=True)
class Competitor:
    """A cache that takes part in a race.

    Attributes:
        title: its title in the table.
        opened: connects, stores a value for every number, and registers the disconnection with the stack; may be a
            coroutine function.
        is_async: True if tasks of one event loop read it, instead of threads.
        is_local: True if its hits must not reach Redis.
    """

    title: str
    opened: Callable[[Dataset, AsyncExitStack], Any]
    is_async: bool = False
    is_local: bool = False
