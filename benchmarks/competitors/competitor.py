"""Interface of a competitor: set up, read one number, close; sync and async."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from benchmarks.apparatus.entries import Value, ValueOf
from benchmarks.apparatus.servers import Servers


@dataclass(frozen=True, slots=True)
class Dataset:
    """Servers and numbers of a race: each of ``numbers`` has a value and can be read."""

    servers: Servers
    numbers: Sequence[int]
    value_of: ValueOf


class Competitor(ABC):
    """Base of all competitors.

    Attributes:
        title: its line in the table.
        needs: modules without which it can't run.
        is_local: whether its hits must not reach Redis.
        note: what a reader of the table has to know; it may come with the set-up.
    """

    title: str
    needs: ClassVar[tuple[str, ...]] = ()
    is_local: ClassVar[bool] = False

    def __init__(self, dataset: Dataset) -> None:
        self.dataset: Dataset = dataset
        self.note: str = ""

    @classmethod
    def missing(cls) -> str:
        """Say why it can't run; empty when it can."""
        absent = [module for module in cls.needs if find_spec(module.partition(".")[0]) is None]
        return f"not installed: {', '.join(absent)}" if absent else ""

    def expected(self, number: int) -> Value:
        """Return what a read of this number gives, when all is right."""
        return self.dataset.value_of(number)


class SyncCompetitor(Competitor):
    """A cache that is read by threads."""

    @abstractmethod
    def set_up(self) -> None:
        """Connect, and put a value under every number."""

    @abstractmethod
    def reader(self) -> Callable[[int], Value]:
        """Return what reads one number; called once for each thread, on it."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class AsyncCompetitor(Competitor):
    """A cache that is read by tasks of one event loop."""

    @abstractmethod
    async def set_up(self) -> None:
        """Connect, and put a value under every number."""

    @abstractmethod
    def reader(self) -> Callable[[int], Awaitable[Value]]:
        """Return what reads one number."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""
