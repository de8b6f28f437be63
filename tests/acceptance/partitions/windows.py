"""Windows of a split, measured: ``python -m tests.acceptance.partitions.windows FOLDER --splits 50 --min-replicas 1``.

A master of the cache, the writer, a reader and a worker are cut off from the other servers of the cache, all Sentinels
and the other clients, again and again; ``--beside`` says how many replicas stay with the master. Graph and broker reach
everyone. So both sides go on, and what the old master acknowledges is unknown to the new one. An invalidation of a key,
or a commit, is lost if a reader gets something older when all is whole again. The writer has ended by then, since
another invalidation of the key would hide the loss.

Each call adds a run to FOLDER, and prints the figures of all its runs.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from refresher.checker.oracle import contradiction
from tests.acceptance.partitions.checker import Bounds, History, due, invalidations, observations
from tests.acceptance.partitions.events import events_in
from tests.acceptance.partitions.nemesis import Fault, Nemesis
from tests.acceptance.partitions.topologies import TOPOLOGIES, Fleet, SentinelsOnHosts
from tests.acceptance.partitions.worker import names_by_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.acceptance.partitions.events import Event

SPLIT_SECONDS, WHOLE_SECONDS = 6.0, 2.0
"""How long the cache is split, and how long the writer writes before."""
WRITING_SECONDS: Final = 7
"""From the start of the writer's process, which takes a second to begin."""
SOONER: Final = ("INFO-PERIOD", "1000", "PUBLISH-PERIOD", "500")
"""Of Sentinels, in ms, instead of 10,000 and 2,000: they demote an old master 2 s after it is back, instead of 10 s."""


def split_of(fleet: Fleet, beside: int) -> Fault:
    """Return the split of the cache."""
    topology, master = fleet.topology, fleet.master
    replicas = [name for name in topology.cache if name != master][:beside]
    one = {master, *replicas, topology.writer, topology.readers[0], topology.workers[0]}
    others = {*topology.cache, *topology.sentinels, *topology.workers, *topology.readers}
    return Fault("the cache is split", frozenset(one), frozenset(others - one), seconds=SPLIT_SECONDS)


def groups_of(fleet: Fleet) -> list[str]:
    """Return the groups whose keys the master has."""
    found = []
    with fleet.client(fleet.master) as client:
        for entry, name in names_by_entry().items():
            with suppress(redis.ResponseError):  # another master has it
                client.exists(entry)
                found.append(name.removeprefix("g"))
    return found


def record(folder: Path, options: argparse.Namespace) -> None:
    """Let a fleet work while its cache is split so many times."""
    with ExitStack() as stack:
        fleet = Fleet(stack, TOPOLOGIES[options.topology], folder, min_replicas=options.min_replicas)
        if isinstance(fleet.replicated, SentinelsOnHosts):
            for sentinel in fleet.replicated.sentinels:
                fleet.replicated.execute(sentinel, "SENTINEL", "DEBUG", *SOONER)
        fleet.start_workers()
        fleet.start_readers(options.seed)
        nemesis, clock = Nemesis(fleet), threading.Event()
        of_writer = ("--by-key", "1", "--replicas", str(options.replicas), "--seconds", str(WRITING_SECONDS))
        for number in range(options.splits):
            fleet.start_client(fleet.topology.writer, options.seed + number, *of_writer, "--groups", *groups_of(fleet))
            clock.wait(WHOLE_SECONDS)
            nemesis.inject([split_of(fleet, options.beside)], options.pause)
        fleet.end_clients()


@dataclass(frozen=True)
class Split:
    """A split: when it began and was repaired, and when all was whole again (s, monotonic).

    ``old_side`` has the hosts on the old master's side, ``reads`` those until the next split, and ``too_old`` those of
    them that got as fresh a value from before an invalidation that returned since the cut, each with it.
    """

    begin: float
    repaired: float
    whole: float
    old_side: list[str]
    reads: list[Event]
    too_old: list[tuple[Event, Event]]


def splits_of(history: History) -> Iterator[Split]:
    """Return the splits of a history."""
    done_by_name, faults = invalidations(history), history.by_kind["fault"]
    ends = [*(fault["start"] for fault in faults[1:]), inf]
    for fault, heal, end in zip(faults, history.by_kind["heal"], ends, strict=False):
        reads = [read for read in history.by_kind["read"] if fault["start"] <= read["start"] < end]
        too_old = [
            (read, event)
            for read in reads
            for seen in (observations(read) if "error" not in read else ())
            for done, event in due(done_by_name[seen.name], seen)
            if done.returned_at > fault["start"] and contradiction(seen, done)
        ]
        yield Split(fault["start"], fault["end"], heal["end"], fault["hosts"], reads, too_old)


class Figures:
    """What the splits of some runs show."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def add(self, history: History) -> None:
        """Add the splits of a run."""
        for split in splits_of(history):
            self.counts["splits"] += 1
            self.seconds["from the repair until all is whole"].append(split.whole - split.repaired)
            last = max([split.repaired, *(read["end"] for read, _ in split.too_old)])
            self.seconds["from the repair until the last old value"].append(last - split.repaired)
            self.counts["splits that lost an invalidation"] += self._add_invalidations(split, history) > 0
            self.counts["splits that lost a commit"] += self._add_commits(split, history) > 0
            self._add_reads(split)

    def _add_invalidations(self, split: Split, history: History) -> int:
        lost_ids = {id(event) for read, event in split.too_old if read["end"] > split.whole}
        lost = 0
        for done in history.by_kind["invalidate"]:
            asked = f"replicas={done['replicas']}"
            if split.begin - WHOLE_SECONDS <= done["start"] and done["end"] < split.begin:
                self.seconds[f"of a call before the split, {asked}"].append(done["end"] - done["start"])
            elif split.begin <= done["end"] < split.repaired and not done["ok"]:
                self.counts["invalidations refused"] += 1
            elif split.begin <= done["end"] < split.repaired:
                lost += self._add(f"invalidations, {asked}{', replicated' * done['replicated']}", id(done) in lost_ids)
                self.seconds["from the cut until an acknowledged invalidation"].append(done["end"] - split.begin)
        return lost

    def _add_commits(self, split: Split, history: History) -> int:
        """Add those of the old side; lost is one of which a reader got an older value when all was whole."""
        least: dict[str, int] = {}
        for read in split.reads:
            if read["start"] > split.whole and "error" not in read and "allowed_seconds" not in read:
                least[read["key"]] = min(read["token"], least.get(read["key"], read["token"]))
        return sum(
            self._add("commits of the old side", least.get(commit["key"], commit["token"]) < commit["token"])
            for commit in history.commits
            if split.begin <= commit["end"] < split.repaired and commit["host"] in split.old_side
        )

    def _add(self, what: str, is_lost: bool) -> int:
        self.counts[what] += 1
        self.counts[f"{what}: lost"] += is_lost
        return is_lost

    def _add_reads(self, split: Split) -> None:
        """Add those until all was whole."""
        too_old = {id(read) for read, _ in split.too_old}
        for read in split.reads:
            if read["start"] < split.whole:
                what = "error" if "error" in read else "too old" if id(read) in too_old else "right"
                self.counts[f"reads, {'old' if read['host'] in split.old_side else 'new'} side: {what}"] += 1

    def __str__(self) -> str:
        """The counts, and of each duration minimum, median, 99th percentile and maximum."""
        shown: dict[str, Any] = dict(sorted(self.counts.items()))
        for name, found in sorted(self.seconds.items()):
            found.sort()
            places = (0, len(found) // 2, len(found) * 99 // 100, -1)
            shown[f"seconds {name}"] = " ".join(f"{found[place]:.3f}" for place in places)
        return json.dumps(shown, indent=1)


def main() -> None:
    """Record a history and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--topology", choices=["sentinel", "cluster"], default="sentinel")
    for name, default in {"splits": 10, "min-replicas": 0, "replicas": 1, "beside": 0, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pause", type=float, default=2.0)
    options = parser.parse_args()
    run = options.folder / f"{options.topology}-{time.time():.0f}"
    run.mkdir(parents=True)
    record(run, options)
    found = Figures()
    for folder in options.folder.iterdir():
        found.add(History(events_in(folder), Bounds()))
    print(found)  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
