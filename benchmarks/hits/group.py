"""Interface of a group of measurements: a name, a title, and a run that gives a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from benchmarks.apparatus.servers import Servers
from benchmarks.hits.options import HitsOptions
from benchmarks.reports.results import Result


@dataclass(frozen=True, slots=True)
class Group(ABC):
    """One group of measurements; ``name`` is what ``--only`` takes, ``is_long`` is for ``--full``."""

    name: str
    title: str
    is_long: bool = field(default=False, kw_only=True)

    @abstractmethod
    def run(self, servers: Servers, options: HitsOptions) -> Result:
        """Measure."""
