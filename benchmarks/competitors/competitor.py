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
    """Servers and numbers of a race: each of ``numbers`` has a value and can be read."""

    servers: Servers
    numbers: Sequence[int]


class Opened(NamedTuple):
    """A cache with a value under every number.

    Attributes:
        read: reads one number; what it returns is to be awaited where the competitor is async.
        expected: what a read of a number gives, when all is right.
        note: what a reader of the table has to know.
    """

    read: Callable[[int], Any]
    expected: Callable[[int], Value] = rows_of
    note: str = ""


@dataclass(frozen=True, slots=True)
class Competitor:
    """A cache that takes part.

    Attributes:
        title: its line in the table.
        opened: connects, puts a value under every number, and has the stack disconnect; may be a coroutine function.
        is_async: whether tasks of one event loop read it, and not threads.
        is_local: whether its hits must not reach Redis.
    """

    title: str
    opened: Callable[[Dataset, AsyncExitStack], Any]
    is_async: bool = False
    is_local: bool = False
