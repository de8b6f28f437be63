"""Interface of a strategy: opened for threads or on an event loop, then read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, ClassVar, TypeAlias

from benchmarks.stampede.config import Config, Kind
from benchmarks.stampede.origin import Origin

Value: TypeAlias = dict[str, Any]


class SyncCache(ABC):
    """A cache that threads read."""

    @abstractmethod
    def read(self, number: int) -> Value:
        """Read, whatever that takes; what it meets goes to `record`."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class AsyncCache(ABC):
    """A cache that tasks of one event loop read."""

    @abstractmethod
    async def read(self, number: int) -> Value:
        """Read, whatever that takes; what it meets goes to `record`."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""


class Strategy(ABC):
    """One way of keeping a value that expires.

    Attributes:
        name: that ``--strategy`` takes.
        title: in tables.
        kinds: by whom it can be read.
        needs: modules without which it can't run.
        is_peer: whether it is another project's cache.
        busy_waits: whether its waiting readers take the processor from everybody: it runs alone.
        reader_sets_expiry: whether a reader, and not who has stored the value, says how long it is fresh.
        unobservable: columns of which nothing can be known from outside.
        limits: what it can't do, in a sentence or two; part of the report.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]] = tuple(Kind)
    needs: ClassVar[tuple[str, ...]] = ()
    is_peer: ClassVar[bool] = False
    busy_waits: ClassVar[bool] = False
    reader_sets_expiry: ClassVar[bool] = False
    unobservable: ClassVar[tuple[str, ...]] = ()
    limits: ClassVar[str]

    def __init__(self, config: Config, variant: str) -> None:
        self.config: Config = config
        self.variant: str = variant

    @classmethod
    def missing(cls) -> str:
        """Say why it can't run; empty when it can."""
        absent = [module for module in cls.needs if find_spec(module.partition(".")[0]) is None]
        return f"not installed: {', '.join(absent)}" if absent else ""

    def origin(self) -> Origin:
        """Return its origin, for this process."""
        return Origin(self.config, self.variant)

    @property
    def prefix(self) -> str:
        """Prefix of its keys."""
        return f"{self.config.servers.namespace}:{self.variant}"

    @abstractmethod
    def on_threads(self) -> SyncCache:
        """Open it for threads."""

    @abstractmethod
    async def on_loop(self) -> AsyncCache:
        """Open it on the running event loop."""


class SyncStrategy(Strategy):
    """A strategy that threads alone can read."""

    kinds: ClassVar[tuple[Kind, ...]] = (Kind.PROCESSES, Kind.THREADS)

    async def on_loop(self) -> AsyncCache:
        raise NotImplementedError


class AsyncStrategy(Strategy):
    """A strategy that lives on event loops; a process of its own has a loop for one reader."""

    kinds: ClassVar[tuple[Kind, ...]] = (Kind.PROCESSES, Kind.ASYNCIO)

    def on_threads(self) -> SyncCache:
        raise NotImplementedError
