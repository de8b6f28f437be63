"""Interface of a setting, which stores a trial's keys, reads them, and clears them away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from benchmarks.topology.plan import Trial
from benchmarks.topology.queries import OriginLoad, QueryKey, beta_of

PRIMED_SECONDS: Final = 0.005
"""Assumed time of a load besides its pause, before the first one is measured."""


class Served(StrEnum):
    """Way in which a read was served."""

    FRESH = "fresh"
    STALE = "stale"
    WAITED = "waited"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TrialSetup:
    """Keys of a trial, with their values in the graph at the start."""

    trial: Trial
    keys: Sequence[QueryKey]
    values: Sequence[Any]

    @property
    def delta_seconds(self) -> float:
        return self.trial.point.pause_seconds or PRIMED_SECONDS

    def beta(self, number: int) -> float:
        candidate = self.trial.candidate
        return beta_of(candidate.mode, candidate.beta0, self.keys[number].degree)


@dataclass(slots=True)
class TrialReader(ABC):
    """One setting in one trial; ``failures`` counts errors by name."""

    setup: TrialSetup
    failures: Counter[str] = field(default_factory=Counter, kw_only=True)

    @abstractmethod
    async def put(self, remaining_seconds: Sequence[float]) -> None:
        """Store all keys in the cache with these rests of freshness; a negative one means expired for that long."""

    @abstractmethod
    async def read(self, number: int) -> Served:
        """Read one key, with any refresh running in the background."""

    @abstractmethod
    async def origin_load(self) -> OriginLoad:
        """Return the loads of the graph so far."""

    @abstractmethod
    async def clear(self) -> None:
        """Wait until nothing is in progress any more, and empty the cache."""

    async def read_and_count(self, number: int) -> Served:
        try:
            return await self.read(number)
        except Exception as error:  # noqa: BLE001 - whatever it is: a trial goes on, and the table shows it
            self.failures[type(error).__name__] += 1
            return Served.FAILED
