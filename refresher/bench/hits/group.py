"""What a group of measurements is: a name, a title, and a run that gives a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from refresher.bench.figures import Result
from refresher.bench.options import BenchOptions
from refresher.bench.payloads import ValueOf, value_of
from refresher.bench.places import Place


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a group runs."""

    place: Place
    options: BenchOptions

    @property
    def value_of(self) -> ValueOf:
        """The value of a number."""
        return value_of(self.options.payload)


@dataclass(frozen=True, slots=True)
class Group(ABC):
    """One group of measurements; ``name`` is what ``--only`` takes, ``is_long`` is for ``--full``."""

    name: str
    title: str
    is_long: bool = field(default=False, kw_only=True)

    @abstractmethod
    def run(self, setting: Setting) -> Result:
        """Measure."""
