"""The strategies, a class a file: four classic ones, ours, and other caches'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.errors import BenchError
from benchmarks.stampede.strategies.aiocache import Aiocache
from benchmarks.stampede.strategies.cacheback import Cacheback
from benchmarks.stampede.strategies.cashews_early import CashewsEarly
from benchmarks.stampede.strategies.cashews_lock import CashewsLock
from benchmarks.stampede.strategies.cashews_soft import CashewsSoft
from benchmarks.stampede.strategies.dogpile import Dogpile
from benchmarks.stampede.strategies.fetch import Fetch
from benchmarks.stampede.strategies.locked import Locked
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.strategies.strategy import Strategy
from benchmarks.stampede.strategies.xfetch import XFetch
from benchmarks.stampede.strategies.xlocked import XLocked

STRATEGIES: Final[Sequence[type[Strategy]]] = (
    Fetch, Locked, XFetch, XLocked, Ours, Dogpile, CashewsEarly, CashewsSoft, CashewsLock, Cacheback, Aiocache,
)  # fmt: skip
BY_NAME: Final = {strategy.name: strategy for strategy in STRATEGIES}


def chosen(names: Iterable[str]) -> list[type[Strategy]]:
    """Return the strategies that were asked for, in the usual order; all when none was.

    Raises:
        BenchError: there is none of a name.
    """
    wanted = list(names) or list(BY_NAME)
    unknown = [name for name in wanted if name not in BY_NAME]
    if unknown:
        raise BenchError(f"no strategy {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    return [strategy for strategy in STRATEGIES if strategy.name in wanted]
