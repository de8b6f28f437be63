"""Interface of a setting: a trial's keys are put into the cache, read, and cleared away."""

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
"""Assumed time of a load beside its pause, before the first one is measured."""


class Served(StrEnum):
    """Way in which a read was served."""

    FRESH = "fresh"
    STALE = "stale"
    WAITED = "waited"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TrialSetup:
    """Keys of a trial, and the value of each as the graph gave it at the start."""

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
    """One setting, for one trial; ``failures`` count errors by name."""

    setup: TrialSetup
    failures: Counter[str] = field(default_factory=Counter, kw_only=True)

    @abstractmethod
    async def put(self, remaining_seconds: Sequence[float]) -> None:
        """Put all keys into the cache, each fresh for so long still; negative: expired since then."""

    @abstractmethod
    async def read(self, number: int) -> Served:
        """Read one key; whatever is refreshed for it is refreshed by the way."""

    @abstractmethod
    async def origin_load(self) -> OriginLoad:
        """Return what the graph has had to do so far."""

    @abstractmethod
    async def clear(self) -> None:
        """Wait until nothing is under way any more, and remove all that is in the cache."""

    async def read_and_count(self, number: int) -> Served:
        try:
            return await self.read(number)
        except Exception as error:  # noqa: BLE001 - whatever it is: a trial goes on, and the table shows it
            self.failures[type(error).__name__] += 1
            return Served.FAILED
