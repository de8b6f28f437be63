"""The nemesis: a plan of faults by a seed, and their injection into a fleet.

Each fault cuts links, or loses a share of their packets; beside some, something happens to one host (`BESIDE`). Then
all is repaired, and the next one waits until the fleet is whole, and some seconds more. That goes to its log: ``fault``
(until the repair), ``heal`` (until the fleet was whole) and ``quiet``.
"""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.acceptance.partitions.events import Log
from tests.acceptance.partitions.lab import full_disk
from tests.acceptance.partitions.topologies import MASTER, Topology
from tests.support.redis_memory import full
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from tests.acceptance.partitions.lab import Link
    from tests.acceptance.partitions.topologies import Fleet

FLAPPING_SECONDS, CLOCK_SECONDS, LOST_SHARE = (0.2, 20.0), (1.0, 300.0), (0.05, 0.5)
RESTART, MOVE, MOVE_AND_SPLIT = "rolling restart", "slots move", "slots move in a split"
BESIDE_SHARE, FLAPPING_SHARE, LOSSY_SHARE = 0.5, 0.15, 0.15
MOVED_SLOTS: Final = 20
REST_SECONDS: Final = 2 * MAX_WAIT_SECONDS
"""Longer than a message stays unacknowledged that a killed worker had (105 s with these settings), and any record."""


@dataclass(frozen=True)
class Fault:
    """A fault: two sides that don't reach each other for ``seconds``, and what else happens to one host then.

    ``lost``: what is lost of what ``one`` and ``other`` send, both or one of them; ``lost_share``: of the packets.
    ``flapping_seconds``: the links are cut and healed in turn, each time for so long; 0: cut all the time. ``beside``:
    what happens to the victim (`BESIDE`); empty: nothing. ``step_seconds``: how far its clock goes off, if it does.
    Hosts may be `MASTER`.
    """

    name: str
    one: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()
    lost: tuple[str, ...] = ("one", "other")
    lost_share: float = 1.0
    seconds: float = 0.0
    flapping_seconds: float = 0.0
    beside: str = ""
    victim: str = ""
    step_seconds: int = 0

    def with_master(self, master: str) -> Fault:
        """Return the fault with the host of the master; what is on the first side is not on the other."""
        one = frozenset(master if host == MASTER else host for host in self.one)
        return replace(self, one=one, other=self.other - one)

    @property
    def links(self) -> frozenset[Link]:
        """Return the links that it cuts."""
        lost = {"one": (self.one, self.other), "other": (self.other, self.one)}
        return frozenset((a, b) for sender in self.lost for a in lost[sender][0] for b in lost[sender][1])

    @property
    def title(self) -> str:
        """Return its name with what happens beside."""
        return f"{self.name}, {self.victim} {self.beside}" if self.beside else self.name

    @property
    def hosts(self) -> list[str]:
        """Return those that are cut off or stopped: the smaller side, and the victim."""
        side = min(self.one, self.other, key=len) if self.one else self.other
        return sorted(side | ({self.victim} - {""}))


def _sides(name: str, one: Iterable[str], other: Iterable[str], **more: tuple[str, ...]) -> Fault:
    return Fault(name, frozenset(one), frozenset(other) - frozenset(one), **more)


def _halves(chosen: random.Random, topology: Topology) -> Fault:
    return _sides("halves", chosen.sample(topology.hosts, len(topology.hosts) // 2), topology.hosts)


def _bridge(chosen: random.Random, topology: Topology) -> Fault:
    middle = chosen.choice(topology.replicated)
    ends = [host for host in topology.hosts if host != middle]
    return _sides("halves with a bridge", chosen.sample(ends, len(ends) // 2), ends)


def _isolated(chosen: random.Random, topology: Topology) -> Fault:
    return _sides("the master alone", [MASTER], topology.hosts)


def _served(chosen: random.Random, topology: Topology) -> Fault:
    """Leave the master with some clients, which it still serves, while the others get a new one."""
    clients = [topology.writer, chosen.choice(topology.readers), chosen.choice(topology.workers)]
    either = [host for host in (topology.graph, *topology.broker[:1], *topology.sentinels[:1]) if chosen.randrange(2)]
    return _sides("the master with some clients", [MASTER, *clients, *either], topology.hosts)


def _one_way(chosen: random.Random, topology: Topology) -> Fault:
    lost = chosen.choice(("one", "other"))
    name = {"one": "what the master sends", "other": "what the master is sent"}[lost]
    return _sides(name, [MASTER], topology.hosts, lost=(lost,))


def _unwatched(chosen: random.Random, topology: Topology) -> Fault:
    return _sides("Sentinels apart from what they watch", topology.sentinels, topology.replicated)


def _no_broker(chosen: random.Random, topology: Topology) -> Fault:
    return _sides("a reader apart from the broker", [chosen.choice(topology.readers)], topology.broker)


def _no_graph(chosen: random.Random, topology: Topology) -> Fault:
    return _sides("a worker apart from the graph", [chosen.choice(topology.workers)], [topology.graph])


def _restart(chosen: random.Random, topology: Topology) -> Fault:
    return _sides(RESTART, (), topology.hosts)


def _move(chosen: random.Random, topology: Topology) -> Fault:
    return Fault(MOVE)


def _move_and_split(chosen: random.Random, topology: Topology) -> Fault:
    return replace(_served(chosen, topology), name=MOVE_AND_SPLIT)


CLOCK, FULL_DISK = "has a wrong clock", "out of disk"
BESIDE: Final = {
    "killed": ("replicated", "sentinels", "workers"),
    "paused": ("replicated", "sentinels", "workers"),
    "out of memory": ("replicated",),
    FULL_DISK: ("replicated",),
    CLOCK: ("replicated", "sentinels", "workers", "readers"),
}
"""What happens to a victim beside a split, and whom of a topology that may be."""

Kind = Callable[[random.Random, Topology], Fault]
EVERYWHERE: Final[tuple[Kind, ...]] = (
    _halves, _bridge, _isolated, _served, _one_way, _no_broker, _no_graph, _restart,
)  # fmt: skip


def kinds_of(topology: Topology) -> tuple[Kind, ...]:
    """Return the kinds of faults of a topology."""
    if topology.sentinels:
        return (*EVERYWHERE, _unwatched)
    return (*EVERYWHERE, _move, _move_and_split) if len(topology.cache) > 1 else EVERYWHERE


def plan(seed: int, topology: Topology, count: int, seconds: tuple[float, float]) -> list[Fault]:
    """Return faults that last between two numbers of seconds: each kind once before one comes again."""
    chosen = random.Random(f"{topology.name}:{seed}")  # noqa: S311 - no secret
    kinds: list[Kind] = []
    while len(kinds) < count:
        kinds += chosen.sample(kinds_of(topology), len(kinds_of(topology)))
    return [_with_more(chosen, topology, kind(chosen, topology), seconds) for kind in kinds[:count]]


def _with_more(chosen: random.Random, topology: Topology, fault: Fault, seconds: tuple[float, float]) -> Fault:
    """Return a fault with its duration; some flap, some lose only a share, and something happens beside some."""
    fault = replace(fault, seconds=chosen.uniform(*seconds) if fault.one else 0.0)
    if not fault.one or fault.name == MOVE_AND_SPLIT:
        return fault
    if chosen.random() < FLAPPING_SHARE:
        return replace(fault, name=f"{fault.name}, flapping", flapping_seconds=_spread(chosen, *FLAPPING_SECONDS))
    if chosen.random() < LOSSY_SHARE:
        return replace(fault, name=f"{fault.name}, lossy", lost_share=chosen.uniform(*LOST_SHARE))
    if chosen.random() < BESIDE_SHARE:
        beside = chosen.choice([what for what in BESIDE if what != FULL_DISK or len(topology.replicated) > 1])
        victim = chosen.choice([host for role in BESIDE[beside] for host in getattr(topology, role)])
        step_seconds = round(_spread(chosen, *CLOCK_SECONDS)) * chosen.choice((1, -1))
        return replace(fault, beside=beside, victim=victim, step_seconds=step_seconds if beside == CLOCK else 0)
    return fault


def _spread(chosen: random.Random, low: float, high: float) -> float:
    """Return a number of which each order of magnitude is as likely."""
    return math.exp(chosen.uniform(math.log(low), math.log(high)))


class Nemesis:
    """Injects faults into a fleet, one after another."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._log = fleet, Log(fleet.folder / "nemesis-nemesis-0.jsonl")
        self._acts = {RESTART: self._restart_all, MOVE: self._move_slots, MOVE_AND_SPLIT: self._move_slots}
        self._clock = threading.Event()  # never set: it only waits

    def inject(self, faults: Iterable[Fault], pause_seconds: float) -> None:
        """Inject each fault, repair it, wait until the fleet is whole, and ``pause_seconds`` more."""
        for planned in faults:
            fault, start = planned.with_master(self._fleet.master), time.monotonic()
            with self._beside(fault):
                self._acts.get(fault.name, self._cut)(fault)
            self._log.write("fault", start, name=fault.title, hosts=fault.hosts)
            repaired = time.monotonic()
            eventually(self._fleet.is_whole, "the fleet is whole again")
            self._log.write("heal", repaired)
            whole = time.monotonic()
            self._clock.wait(pause_seconds)
            self._log.write("quiet", whole)

    def rest(self) -> None:
        """Wait until nothing is left but what belongs there, at most `REST_SECONDS`; the clients have ended."""
        start = time.monotonic()
        with suppress(AssertionError):
            eventually(lambda: not self._fleet.left(), "nothing is left", within_seconds=REST_SECONDS)
        self._log.write("quiet", start, left=self._fleet.left())

    def _cut(self, fault: Fault) -> None:
        end = time.monotonic() + fault.seconds
        while (left := end - time.monotonic()) > 0:
            self._fleet.lab.cut(fault.links, fault.lost_share)
            self._clock.wait(min(left, fault.flapping_seconds or left))
            self._fleet.lab.cut(())
            self._clock.wait(min(max(0.0, end - time.monotonic()), fault.flapping_seconds))

    @contextmanager
    def _beside(self, fault: Fault) -> Iterator[None]:
        victim, fleet = fault.victim, self._fleet
        if fault.beside == "killed":
            fleet.running(victim).kill()
            yield
            fleet.restart(victim)
        elif fault.beside == "paused":
            os.killpg(fleet.running(victim).pid, signal.SIGSTOP)
            yield
            os.killpg(fleet.running(victim).pid, signal.SIGCONT)
        elif fault.beside == "out of memory":
            with fleet.client(victim) as client:
                with full(client):
                    yield
                client.config_rewrite()  # a Sentinel may have let it write that it is full
        elif fault.beside == FULL_DISK:
            with full_disk(fleet.running(victim).pid):
                yield
            # A node of a cluster ends where it can't write what it knows of the others.
            if not fleet.servers[victim].is_running:
                fleet.restart(victim)
        elif fault.beside == CLOCK:
            fleet.lab.hosts[victim].clock.goes_off_by(fault.step_seconds)
            yield
            fleet.lab.hosts[victim].clock.goes_off_by(0)
        else:
            yield

    def _restart_all(self, fault: Fault) -> None:
        for name in fault.hosts:
            self._fleet.restart(name)
            eventually(self._fleet.is_whole, f"{name} is back")

    def _move_slots(self, fault: Fault) -> None:
        moves = self._fleet.replicated.begin_moves(MOVED_SLOTS)
        self._cut(fault)
        eventually(self._fleet.is_whole, "its nodes agree")
        self._fleet.replicated.end_moves(moves)
