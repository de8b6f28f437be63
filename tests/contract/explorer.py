"""Explorer of every interleaving of actors' scripts on a real Redis, with checks after each step.

Orders that lead to the same state go on in the same way, so from there they are played once: all orders are
enumerated, and every step is run once from every state. Numbers are compared by their order and times by their
distance from now, which is all that the scripts do with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from api_client.protocol.lease import AcquireStatus, ClaimStatus, CommitStatus
from tests.contract.actors import Table
from tests.support.frozen_lease import FrozenLease
from tests.support.lease_invariants import Watch, frozen_fields
from tests.support.lease_world import QUEUE_TTL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.contract.actors import Actor, Place
    from tests.support.lease_world import ClockedWorld, StepSnapshot

NUMBERS = ("number", "claim_number", "token", "generation", "hard", "failed_token")
TIMES = ("since", "until", "limit", "published")
IGNORED = {"by", "claimed_at"}  # for people, and for δ


@dataclass(frozen=True)
class State:
    """A moment of an order: the data in Redis, its clock, the place of each actor, and the history."""

    seen: StepSnapshot
    now_us: int
    places: tuple[Place, ...]
    watch: Watch

    def alike(self) -> object:
        """Return a value that is equal for states that go on in the same way."""
        rank = self._ranks(frozen_fields(self.seen.raw_entry))
        runs = tuple(
            (rank[run[0]], run[1], began > self.watch.soft_at, began > self.watch.hard_at, run in self.watch.stored)
            for run, began in self.watch.began.items()
        )
        places = tuple(tuple(rank.get(part, part) for part in place) for place in self.places)
        return places, runs, rank.get(self.watch.entry_token), self.in_redis(rank)

    def in_redis(self, rank: dict[Any, str] | None = None) -> object:
        """Return the same of what is in Redis alone."""
        entry = frozen_fields(self.seen.raw_entry)
        rank = rank or self._ranks(entry)
        record = tuple(
            (name, rank[int(value)] if name in NUMBERS else int(value) - self.now_us if name in TIMES else value)
            for name, value in sorted(self.seen.record.items())
            if name not in IGNORED
        )
        head = entry and (rank[entry[0]], rank[entry[1]], entry[3])
        return head, record, self.seen.entry_ms, self.seen.record_ms, rank[self.now_us]

    def _ranks(self, entry: tuple[int, int, int, bytes] | None) -> dict[Any, str]:
        known = {self.now_us, self.watch.entry_token, *(run[0] for run in self.watch.runs), *(entry or ())[:2]}
        known |= {int(self.seen.record[name]) for name in NUMBERS if name in self.seen.record}
        return {number: f"no. {place}" for place, number in enumerate(sorted(known))}


@dataclass
class Explorer:
    """Plays all orders of ``actors``. ``steps`` counts the steps, ``orders_from`` the orders from each state on."""

    world: ClockedWorld
    actors: Sequence[Actor]
    frozen: FrozenLease = field(init=False)
    steps: int = 0
    orders_from: dict[object, int] = field(default_factory=dict)
    live: set[object] = field(default_factory=set)
    path: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.frozen = FrozenLease(self.world)
        self.world = replace(self.world, store=self.frozen)

    def explore(self) -> int:
        """Play all orders; return their number."""
        return self._from(self._now(tuple(actor.start for actor in self.actors), Watch()))

    def _now(self, places: tuple[Place, ...], watch: Watch) -> State:
        seen = self.frozen.look()
        watch.look(seen)
        return State(seen, self.world.clock.now_us, places, watch)

    def _from(self, state: State) -> int:
        alike = state.alike()
        if alike not in self.orders_from:
            self._nothing_is_stuck(state)
            orders = 0
            for index, actor in enumerate(self.actors):
                for move in actor.moves(state.places[index]):
                    self.path.append(f"{getattr(actor, 'name', type(actor).__name__)}: {move}")
                    orders += self._from(self._after(state, index, move))
                    self.path.pop()
            self.orders_from[alike] = orders or 1
        return self.orders_from[alike]

    def _after(self, state: State, index: int, move: str) -> State:
        self.frozen.go_back_to(state.seen, state.now_us)
        self.steps += 1
        table, places = Table(self.world, state.seen, state.watch.copy(), self.frozen), list(state.places)
        try:
            places[index] = self.actors[index].make_move(move, state.places[index], table)
            return self._now(tuple(places), table.watch)
        except AssertionError as error:
            error.add_note(f"in this order: {' → '.join(self.path)}")
            raise

    def _nothing_is_stuck(self, state: State) -> None:
        """Check that the next reader gets a value, at once or after the wait of its reply, even if all actors died now.

        The wait is never longer than was granted, wherever the clock has been set.
        """
        alike = state.in_redis()
        if alike in self.live:
            return
        self.live.add(alike)
        self.frozen.go_back_to(state.seen, state.now_us)
        entry = frozen_fields(state.seen.raw_entry)
        claimed = self.world.claim("the next reader", seen=entry[0] if entry else 0)
        if claimed.status is not ClaimStatus.CLAIMED:
            assert claimed.left_seconds <= QUEUE_TTL_SECONDS, f"{claimed.left_seconds} s to wait after {self.path}"
            self.frozen.move_clock(claimed.left_seconds)
            # The entry that it found may have been evicted meanwhile.
            entry = frozen_fields(self.frozen.look().raw_entry)
            claimed = self.world.claim("the next reader", seen=entry[0] if entry else 0)
        acquired = self.world.acquire(b"the next", number=claimed.number)
        status = self.world.commit(acquired.token, b"the next")
        happened = claimed.status, acquired.status, status
        assert happened == (ClaimStatus.CLAIMED, AcquireStatus.ACQUIRED, CommitStatus.ACCEPTED), (
            f"stuck after {self.path}"
        )
        assert self.frozen.look().record == {}, "I6: at rest an entry is one key"
