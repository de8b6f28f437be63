"""Dependencies of the refresh flow, injected so that tests can substitute them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, LiteralString, Protocol

from api_client.protocol.messages import RefreshItem
from api_client.protocol.payload import Packed
from api_client.transport.scripts import LeaseStepRunner
from refresher.errors import LoadFailed
from refresher.flow.budgets import LoadShare
from refresher.flow.dead_letters import DeadLetter
from refresher.flow.events import WorkerEvents
from refresher.flow.renewals import Renewable
from refresher.queries import Loaded, Query, Registry
from refresher.results import Previous


class RunsQueries(Protocol):
    """The part of a transaction that a loader uses."""

    def run(  # noqa: D102
        self, query: LiteralString, parameters: dict[str, Any] | None = None, **more: Any
    ) -> Any: ...


class Origin(Protocol):
    """Source of values: one for each call, given as its params, and what there is of it before."""

    def load(  # noqa: D102
        self,
        query: Query,
        calls: Sequence[Mapping[str, Any]],
        previous: Sequence[Previous | None],
        bookmarks: Sequence[str],
        timeout_seconds: float,
    ) -> Sequence[Loaded]: ...


class Encode(Protocol):
    """Encodes a value as a payload, not compressed yet, or raises LoadFailed."""

    def __call__(self, value: Any, *, query: str, max_bytes: int) -> Packed: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class RefreshDeps:
    """The dependencies.

    ``publish`` sends an item at once. ``write_dead_letter`` writes a dead letter if it can, in the place of the key's
    one with that token (0: none). ``failure_of`` classifies anything that a load raises; None: this process ends.
    ``interruptible`` is the context of a load, which a time limit may interrupt. ``hands_back`` returns whether a run
    that an exception ends is handed back: it can't be finished here, and that is no fault of the key. ``is_in_place``:
    runs are within another task or load, with which they may end. ``register`` returns once an invalidation reaches
    the query's version. ``share_of`` returns what the load of some items takes from the budgets.
    """

    lease_steps: LeaseStepRunner
    origin: Origin
    encode: Encode
    registry: Registry
    keep_leases: Callable[[Sequence[Renewable]], AbstractContextManager[None]]
    publish: Callable[[RefreshItem], None]
    write_dead_letter: Callable[[DeadLetter, int], None]
    monotonic: Callable[[], float]
    sleep: Callable[[float], object]
    events: WorkerEvents
    failure_of: Callable[[BaseException], LoadFailed | None]
    interruptible: Callable[[], AbstractContextManager[None]] = nullcontext
    hands_back: Callable[[BaseException], bool] = lambda _: False
    is_in_place: bool = False
    uniform: Callable[[], float] = random.random
    register: Callable[[Query], object] = lambda _: None
    share_of: Callable[[Query | None, Sequence[RefreshItem]], LoadShare] = lambda *_: LoadShare()
