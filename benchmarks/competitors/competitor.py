"""Interface of a competitor: set up, read one number, close."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

from benchmarks.apparatus.entries import Value, rows_of
from benchmarks.apparatus.servers import Servers


@dataclass(frozen=True, slots=True)
class Dataset:
    """Servers and numbers of a race: each of ``numbers`` has a value and can be read."""

    servers: Servers
    numbers: Sequence[int]


class Competitor(ABC):
    """Base of all competitors. What they do is sync, or, where `is_async`, to be awaited.

    Attributes:
        title: its line in the table.
        needs: modules without which it can't run.
        is_async: whether tasks of one event loop read it, and not threads.
        is_local: whether its hits must not reach Redis.
        note: what a reader of the table has to know; it may come with the set-up.
    """

    title: str
    needs: ClassVar[tuple[str, ...]] = ()
    is_async: ClassVar[bool] = False
    is_local: ClassVar[bool] = False

    def __init__(self, dataset: Dataset) -> None:
        self.dataset: Dataset = dataset
        self.note: str = ""

    @classmethod
    def missing(cls) -> str:
        """Say why it can't run; empty when it can."""
        absent = [module for module in cls.needs if find_spec(module.partition(".")[0]) is None]
        return f"not installed: {', '.join(absent)}" if absent else ""

    @abstractmethod
    def set_up(self) -> Any:
        """Connect, and put a value under every number."""

    @abstractmethod
    def reader(self) -> Callable[[int], Any]:
        """Return what reads one number."""

    def expected(self, number: int) -> Value:
        """Return what a read of this number gives, when all is right."""
        return rows_of(number)

    @abstractmethod
    def close(self) -> Any:
        """Disconnect."""
