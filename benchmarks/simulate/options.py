"""Options of ``python -m benchmarks simulate``."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

import typer

from benchmarks.options import Options


class Popularity(StrEnum):
    """Distribution of reads over keys."""

    ZIPF = "zipf"
    RMAT = "rmat"


class Mode(StrEnum):
    """Policy of early refreshes, if any."""

    NONE = "none"
    PLAIN = "plain"
    TOPOLOGY_SENSITIVE = "topology_sensitive"


class Scenario(StrEnum):
    """Simulated scenario."""

    STEADY = "steady"
    WORKER_OUTAGE = "worker-outage"
    FLEET = "fleet"
    BETA = "beta"
    OVERLOAD = "overload"
    RECOVERY = "recovery"
    FEED = "feed"


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(Options):
    """Simulate readers and workers as no machine here can hold them: millions of keys, a million reads per second.

    The decisions are the product's own; the times of servers, broker and network are constants.
    """

    scenario: Annotated[
        list[Scenario],
        typer.Option(metavar="|".join(Scenario), help="Simulate this one; may be repeated. [default: all]"),
    ] = field(default_factory=list)
    keys: Annotated[int, typer.Option(min=10, max=50_000_000, help="How many keys there are.")] = 10_000_000
    reads_per_second: Annotated[float, typer.Option(min=1, help="Of all keys and readers together, a second.")] = (
        1_000_000.0
    )
    readers: Annotated[int, typer.Option(min=1, max=100_000, help="Processes that read.")] = 1_000
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes. [default: twice as many as the steady load keeps busy]")
    ] = None
    delta: Annotated[float, typer.Option(min=0.0001, help="What a load takes, in seconds.")] = 0.05
    seconds: Annotated[int, typer.Option(min=10, max=86_400, help="The span that is simulated.")] = 600
    ttl: Annotated[float, typer.Option(min=0.1, help="Of all entries, in seconds.")] = 3_600.0
    real: Annotated[
        bool,
        typer.Option(
            "--real",
            help="Run real processes instead: five loads up to three times what the workers can carry, beside their "
            "simulation, a quarter of an hour.",
        ),
    ] = False
