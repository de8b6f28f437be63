"""Explorer of every interleaving of actors' scripts on a real Redis, with checks after each step.

Orders that lead to the same state go on in the same way, so from there they are played once: all orders are
enumerated, and every step is run once from every state. Numbers are compared by their order and times by their
distance from now, which is all that the scripts do with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from api_client.protocol.lease import AcquireStatus, ClaimStatus, CommitStatus
from tests.support.frozen_lease import FrozenLease
from tests.support.lease_invariants import Watch, frozen_fields
from tests.support.lease_world import QUEUE_TTL_SECONDS, ClockedWorld, StepSnapshot

Place: TypeAlias = tuple[Any, ...]
OVER: Place = ("over",)
ENDS = ("commit", "retry", "fail", "hand_back")
HOUR_SECONDS = 3_600
# No moment comes twice, as none does on a real machine: hence the odd microseconds, and the second after a loss.
CLOCK = {"lease lapses": 1_730.0, "all lapses": 7_000.0, "record expires": 70_000.0, "clock back": 7e-6 - HOUR_SECONDS}
EVICTED = {"record lost": ("record",), "entry lost": ("entry",), "both lost": ("record", "entry")}
ALL_MISHAPS = (*CLOCK, *EVICTED)
NUMBERS = ("number", "claim_number", "token", "generation", "hard", "failed_token")
TIMES = ("since", "until", "limit", "published")
IGNORED = {"by", "claimed_at"}  # for people, and for δ


@dataclass
class Table:
    """The context of a move: the key, its state before the move, and its history."""

    world: ClockedWorld
    seen: StepSnapshot
    watch: Watch
    frozen: FrozenLease

    @property
    def entry_token(self) -> int:
        entry = frozen_fields(self.seen.raw_entry)
        return entry[0] if entry else 0


class Actor(Protocol):
    start: Place

    def moves(self, place: Place) -> Sequence[str]:
        """Return the possible next moves."""
        ...

    def make_move(self, move: str, place: Place, table: Table) -> Place:
        """Make a move, and return the new place."""
        ...


@dataclass(frozen=True)
class Worker:
    """Takes a message, loads, and ends its run in one of ``ends``; twice when the first ends in a retry.

    ``loses_replies``: each step that may be repeated is also run a second time, its first reply having been lost.
    """

    name: str
    ends: tuple[str, ...] = ENDS
    renews: bool = False
    loses_replies: bool = False
    start: Place = ("waits", 1, "", "")

    def moves(self, place: Place) -> Sequence[str]:
        match place:
            case ("waits", _, _, lost):
                return ["acquire", "acquire, reply lost"] if self.loses_replies and not lost else ["acquire"]
            case ("runs", attempt, _, renewed):
                ends = [end for end in self.ends if attempt == 1 or end != "retry"]
                return [*ends, "renew"] if self.renews and not renewed else ends
            case ("ended", end, _, _) if self.loses_replies:
                return [f"{end} again"]
        return []

    def make_move(self, move: str, place: Place, table: Table) -> Place:
        if place[0] == "waits":
            return self._acquire(place, table, is_lost="lost" in move)
        if place[0] == "ended":
            _, end, attempt, token = place
            self._end(end, attempt, token, table)
            return OVER
        _, attempt, token, _ = place
        if move == "renew":
            table.world.renew(token, self._nonce(attempt))
            return "runs", attempt, token, "renewed"
        return self._end(move, attempt, token, table)

    def _nonce(self, attempt: int) -> bytes:
        return f"{self.name:>6}-{attempt}".encode()

    def _acquire(self, place: Place, table: Table, *, is_lost: bool) -> Place:
        _, attempt, ticket, _ = place
        queued = table.seen.record.get("claim_number", b"0") if table.seen.record.get("state") == b"queued" else 0
        reply = table.world.acquire(self._nonce(attempt), number=max(int(queued), table.entry_token), ticket=ticket)
        if reply.status is AcquireStatus.ACQUIRED:
            table.watch.acquired((reply.token, self._nonce(attempt)))
        if is_lost:
            return "waits", attempt, ticket, "again"
        return ("runs", attempt, reply.token, "") if reply.status is AcquireStatus.ACQUIRED else OVER

    def _end(self, end: str, attempt: int, token: int, table: Table) -> Place:
        nonce, ticket = self._nonce(attempt), f"{self.name}'s ticket"
        if end == "commit":
            status = table.world.commit(token, nonce)
            table.watch.committed((token, nonce), status, table.seen, table.frozen.look())
        elif end == "retry":
            kept = table.world.retry(token, nonce, ticket)
            return ("waits", 2, ticket, "") if kept else OVER
        else:
            getattr(table.world, end)(token, nonce)
        return "ended", end, attempt, token


@dataclass(frozen=True)
class Reader:
    """Claims for the entry that it sees, then unclaims, or publishes the message again."""

    name: str
    start: Place = ("reads",)

    def moves(self, place: Place) -> Sequence[str]:
        return {"reads": ["claim"], "holds": ["unclaim", "republish"]}.get(place[0], [])

    def make_move(self, move: str, place: Place, table: Table) -> Place:
        if move == "claim":
            reply = table.world.claim(self.name, seen=table.entry_token)
            return ("holds",) if reply.status is ClaimStatus.CLAIMED else OVER
        _ = table.world.unclaim(self.name) if move == "unclaim" else table.world.republish()
        return OVER


@dataclass(frozen=True)
class Writer:
    """Invalidates ``times`` times, each in one of ``ways``."""

    ways: tuple[str, ...] = ("soft", "hard")
    times: int = 1

    @property
    def start(self) -> Place:
        return (self.times,)

    def moves(self, place: Place) -> Sequence[str]:
        return self.ways if place[0] else []

    def make_move(self, move: str, place: Place, table: Table) -> Place:
        generation = table.world.invalidate(hard=move == "hard")
        table.watch.invalidated(generation, hard=move == "hard")
        return (place[0] - 1,)


@dataclass(frozen=True)
class Mishaps:
    """Failures of Redis and of its clock: at most ``most`` of ``kinds``, each at most once."""

    kinds: tuple[str, ...] = ALL_MISHAPS
    most: int = 1
    start: Place = ()

    def moves(self, place: Place) -> Sequence[str]:
        return [kind for kind in self.kinds if kind not in place] if len(place) < self.most else []

    def make_move(self, move: str, place: Place, table: Table) -> Place:
        if move in EVICTED:
            table.frozen.delete(*(getattr(table.world.key, part) for part in EVICTED[move]))
        table.frozen.move_clock(CLOCK.get(move, 1))
        return tuple(sorted((*place, move)))


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
