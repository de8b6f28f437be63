"""``python -m benchmarks simulate``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from benchmarks.arguments import Out, Quick, console_of

DEFAULT_OUT: Final = Path("bench-results/simulate")
MAX_KEYS: Final = 50_000_000
MAX_READERS: Final = 100_000
MAX_WORKERS: Final = 100_000


class Popularity(StrEnum):
    """Distribution of reads over keys."""

    ZIPF = "zipf"
    RMAT = "rmat"


class Mode(StrEnum):
    """Earliest moment of a refresh: once a value is stale, or before."""

    NONE = "none"
    PLAIN = "plain"
    TOPOLOGY_SENSITIVE = "topology_sensitive"


class Scenario(StrEnum):
    """Simulated scenario."""

    STEADY = "steady"
    CORRELATED_EXPIRY = "correlated-expiry"
    WORKER_OUTAGE = "worker-outage"
    SLOW_ORIGIN = "slow-origin"
    FLEET = "fleet"
    BETA = "beta"


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Options of `python -m benchmarks simulate`, as its ``--help`` explains them; None: as much as is usual."""

    scenarios: tuple[Scenario, ...] = ()
    keys: int = 10_000_000
    reads_per_second: float = 1_000_000.0
    readers: int = 1_000
    workers: int | None = None
    seconds: int = 600
    popularity: Popularity = Popularity.RMAT
    zipf_exponent: float = 1.0
    ttl_seconds: float = 3_600.0
    grace_seconds: float = 3_600.0
    delta_seconds: float = 0.05
    delta_spread: float = 0.0
    beta: float = 1.0
    mode: Mode = Mode.TOPOLOGY_SENSITIVE
    seed: int = 1
    validate: bool = False
    quick: bool = False
    out: Path = DEFAULT_OUT


_WIDTH_IN_A_FILE: Final = 240
_DEFAULT: Final = SimulateOptions()

_Scenarios: TypeAlias = Annotated[
    list[Scenario] | None,
    typer.Option("--scenario", metavar="|".join(Scenario), help="Simulate this one; may be repeated. [default: all]"),
]
_Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, max=MAX_WORKERS, help="Worker processes. [default: twice as many as the steady load keeps busy]"
    ),
]
_Readers: TypeAlias = Annotated[int, typer.Option(min=1, max=MAX_READERS, help="Processes that read.")]
_Reads: TypeAlias = Annotated[float, typer.Option(min=1, help="Of all keys and readers together, a second.")]
_Delta: TypeAlias = Annotated[float, typer.Option(min=0.0001, help="What a load takes, in seconds.")]
_Spread: TypeAlias = Annotated[
    float, typer.Option(min=0, max=3, help="σ of the logarithm of what a load takes; 0: always the same.")
]
_ZipfExponent: TypeAlias = Annotated[
    float, typer.Option(min=0, max=5, help="Where popularity is Zipf's: the greater, the more uneven; 0: all alike.")
]
_Validate: TypeAlias = Annotated[
    bool,
    typer.Option("--validate", help="A real run of a minute, with its own size, and the same one simulated."),
]


def simulate(
    scenario: _Scenarios = None,
    keys: Annotated[int, typer.Option(min=10, max=MAX_KEYS, help="How many keys there are.")] = _DEFAULT.keys,
    reads_per_second: _Reads = _DEFAULT.reads_per_second,
    readers: _Readers = _DEFAULT.readers,
    workers: _Workers = None,
    seconds: Annotated[int, typer.Option(min=10, max=86_400, help="The span that is simulated.")] = _DEFAULT.seconds,
    popularity: Annotated[Popularity, typer.Option(help="How reads are shared.")] = _DEFAULT.popularity,
    zipf_exponent: _ZipfExponent = _DEFAULT.zipf_exponent,
    ttl: Annotated[float, typer.Option(min=0.1, help="Of all entries, in seconds.")] = _DEFAULT.ttl_seconds,
    grace: Annotated[float, typer.Option(min=0, help="Of all entries, in seconds.")] = _DEFAULT.grace_seconds,
    delta: _Delta = _DEFAULT.delta_seconds,
    delta_spread: _Spread = _DEFAULT.delta_spread,
    beta: Annotated[float, typer.Option(min=0.001, max=1000, help="β0: the greater, the earlier.")] = _DEFAULT.beta,
    mode: Annotated[
        Mode, typer.Option(help="When refreshes begin, where a scenario does not compare that.")
    ] = _DEFAULT.mode,
    validate: _Validate = False,
    quick: Quick = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = _DEFAULT.seed,
    out: Out = DEFAULT_OUT,
) -> None:
    """Simulate readers and workers as no machine here can hold them: millions of keys, a million reads per second.

    The decisions are the product's own; servers, broker and network are figures that --validate measures.
    """
    from benchmarks.simulate.scenarios import run_simulate

    options = SimulateOptions(
        scenarios=tuple(scenario or ()), keys=keys, reads_per_second=reads_per_second, readers=readers,
        workers=workers, seconds=seconds, popularity=popularity, zipf_exponent=zipf_exponent, ttl_seconds=ttl,
        grace_seconds=grace, delta_seconds=delta, delta_spread=delta_spread, beta=beta, mode=mode, seed=seed,
        validate=validate, quick=quick, out=out,
    )  # fmt: skip
    run_simulate(options, console_of(_WIDTH_IN_A_FILE))
