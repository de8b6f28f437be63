"""The list of groups, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.errors import BenchError
from benchmarks.herd.makers import Kind
from benchmarks.hits.group import Group
from benchmarks.hits.herds import HerdGroup
from benchmarks.hits.hung_broker import HungBroker
from benchmarks.hits.memory import Memory
from benchmarks.hits.million import Million
from benchmarks.hits.rates import MODES
from benchmarks.hits.triggering import Triggering
from benchmarks.options import BenchOptions

GROUPS: Final[Sequence[Group]] = (
    *MODES,
    Triggering("trigger", "a read that asks for a refresh"),
    HungBroker("hung-broker", "reads while the broker hangs"),
    HerdGroup("herd-threads", "concurrent readers of one key in 4 processes, threads", kind=Kind.THREADS),
    HerdGroup("herd-asyncio", "concurrent readers of one key in 4 processes, asyncio", kind=Kind.ASYNCIO),
    Memory("memory", "what an entry costs in Redis"),
    Million("million", "a full cache", is_long=True),
)


def chosen(options: BenchOptions) -> list[Group]:
    """Return the groups that were asked for.

    Raises:
        BenchError: there is none of a name.
    """
    names = [group.name for group in GROUPS]
    unknown = [name for name in options.only if name not in names]
    if unknown:
        raise BenchError(f"no group {unknown[0]!r}; there are {', '.join(names)}")
    if options.only:
        return [group for group in GROUPS if group.name in options.only]
    return [group for group in GROUPS if options.full or options.quick or not group.is_long]
