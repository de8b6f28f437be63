"""A world to simulate: readers, workers, keys, and what goes wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from benchmarks.simulate.options import Mode, Popularity


@dataclass(frozen=True, slots=True)
class Costs:
    """What the machinery takes beside the loads; seconds.

    Attributes:
        claim: from a read's decision to its claim.
        pickup: from the claim to the acquire, when a worker is idle.
        overhead: of a run, beside its load.
        turnaround: of a worker between two runs.
        idle_message: of a message for which there is nothing to do.
    """

    claim: float = 0.001
    pickup: float = 0.003
    overhead: float = 0.003
    turnaround: float = 0.001
    idle_message: float = 0.002


DEFAULT_COSTS: Final = Costs()
NO_COSTS: Final = Costs(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong, and when; seconds from the begin. Default: nothing.

    Attributes:
        down: all workers are killed at the first, and there again at the second; whole seconds.
        slow, slow_times: loads that begin in between take so many times as long.
        expire_at: this share of all entries expires here, or up to ``expire_over`` later, as if loaded together.
    """

    down: tuple[int, int] = (1 << 40, 1 << 40)
    slow: tuple[float, float] = (math.inf, math.inf)
    slow_times: float = 1.0
    expire_at: float = math.inf
    expire_over: float = 0.0
    expire_share: float = 0.0


@dataclass(frozen=True, slots=True)
class World:
    """One simulated run; settings are the product's, and have its defaults. Times in seconds.

    Attributes:
        pickups: ``costs.pickup`` second by second, where it was measured so; empty: always the same.
        in_readers: the process of the reader that asks loads the value, early ones beside its answer; an expired entry
            is gone (no grace), its readers wait, and nothing limits how many load at a time.
    """

    keys: int
    reads_per_second: float
    readers: int
    workers: int
    seconds: int
    ttl: float
    grace: float
    load: float
    load_spread: float = 0.0
    beta: float = 1.0
    mode: Mode = Mode.TOPOLOGY_SENSITIVE
    popularity: Popularity = Popularity.RMAT
    zipf_exponent: float = 1.0
    min_ttl: float = 60.0
    digits: int = 0
    queue_size: int = 100
    queue_ttl: float = 60.0
    wait_timeout: float = 5.0
    lease_floor: float = 5.0
    in_readers: bool = False
    costs: Costs = DEFAULT_COSTS
    pickups: tuple[float, ...] = ()
    trouble: Trouble = field(default_factory=Trouble)
    seed: int = 1

    @property
    def service(self) -> float:
        """What a refresh keeps a worker busy for, on average."""
        return self.load + self.costs.overhead

    @property
    def lead(self) -> float:
        """What a refresh takes from claim to commit when a worker is idle, on average."""
        return self.costs.pickup + self.service
