"""Actors at one key: workers with all outcomes of a run, readers, writers that invalidate, and mishaps.

An actor's place is its progress: a tuple, so that places can be compared. Its moves are its possible next steps; its
death needs no move of its own: it just makes none any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from api_client.protocol.lease import AcquireStatus, ClaimStatus
from tests.support.lease_invariants import frozen_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.frozen_lease import FrozenLease
    from tests.support.lease_invariants import Watch
    from tests.support.lease_world import ClockedWorld, StepSnapshot

Place: TypeAlias = tuple[Any, ...]
OVER: Place = ("over",)
ENDS = ("commit", "retry", "fail", "hand_back")


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


HOUR_SECONDS = 3_600
# No moment comes twice, as none does on a real machine: hence the odd microseconds, and the second after a loss.
CLOCK = {"lease lapses": 1_730.0, "all lapses": 7_000.0, "record expires": 70_000.0, "clock back": 7e-6 - HOUR_SECONDS}
EVICTED = {"record lost": ("record",), "entry lost": ("entry",), "both lost": ("record", "entry")}
ALL_MISHAPS = (*CLOCK, *EVICTED)


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
