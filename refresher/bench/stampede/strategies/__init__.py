"""The strategies, a class a file: four classic ones, ours, and other caches'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from refresher.bench.errors import BenchError
from refresher.bench.stampede.strategies.aiocache import Aiocache
from refresher.bench.stampede.strategies.cacheback import Cacheback
from refresher.bench.stampede.strategies.cashews_early import CashewsEarly
from refresher.bench.stampede.strategies.cashews_lock import CashewsLock
from refresher.bench.stampede.strategies.cashews_soft import CashewsSoft
from refresher.bench.stampede.strategies.dogpile import Dogpile
from refresher.bench.stampede.strategies.fetch import Fetch
from refresher.bench.stampede.strategies.locked import Locked
from refresher.bench.stampede.strategies.ours import Ours
from refresher.bench.stampede.strategies.strategy import Strategy
from refresher.bench.stampede.strategies.xfetch import XFetch
from refresher.bench.stampede.strategies.xlocked import XLocked

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
