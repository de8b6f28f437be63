"""Interface of a strategy: opened for threads or on an event loop, then read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

from benchmarks.stampede.config import Config, Kind
from benchmarks.stampede.origin import Origin

Value: TypeAlias = dict[str, Any]
ON_THREADS = (Kind.PROCESSES, Kind.THREADS)
ON_LOOPS = (Kind.PROCESSES, Kind.ASYNCIO)


class Cache(NamedTuple):
    """Client that readers share, with marks going to `record`. On an event loop, both functions return awaitables."""

    read: Callable[[int], Any]
    close: Callable[[], Any]


class Strategy(ABC):
    """One strategy for a value that expires.

    Attributes:
        name: the name for ``--strategy``.
        title: the title in tables.
        kinds: the kinds of readers that it supports.
        is_peer: True if it is another project's cache.
        busy_waits: True if its waiting readers take CPU time from all others, so that it runs alone.
        reader_sets_expiry: True if the reader, rather than whoever stored a value, determines its freshness.
        unobservable: the columns that can't be observed from outside.
        limits: its limits, in a sentence or two for the report.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]] = tuple(Kind)
    is_peer: ClassVar[bool] = False
    busy_waits: ClassVar[bool] = False
    reader_sets_expiry: ClassVar[bool] = False
    unobservable: ClassVar[tuple[str, ...]] = ()
    limits: ClassVar[str]

    def __init__(self, config: Config, variant: str) -> None:
        self.config: Config = config
        self.variant: str = variant

    @classmethod
    def is_on_loop(cls, kind: Kind) -> bool:
        """Return whether readers of this kind read it on an event loop, which a process of its own has if needed."""
        return kind is Kind.ASYNCIO or Kind.THREADS not in cls.kinds

    @property
    def prefix(self) -> str:
        return f"{self.config.servers.namespace}:{self.variant}"

    @abstractmethod
    async def opened(self, *, on_loop: bool) -> Cache:
        """Open the cache for threads, or on the running event loop."""

    def origin(self, *, on_loop: bool) -> Origin:
        return Origin(self.config, self.variant, on_loop=on_loop)
