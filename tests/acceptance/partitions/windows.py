"""Windows of a split, measured: ``python -m tests.acceptance.partitions.windows FOLDER --splits 100 --min-replicas 1``.

The cache's master, the writer, a reader and a worker are cut off from the other servers of the cache, all Sentinels and
the other clients, again and again; graph and broker reach everyone. So both sides go on, and an invalidation that the
old master acknowledges is unknown to the new one. Of each split it counts the invalidations of single keys that
returned meanwhile, and those that were lost: a reader got an older value as fresh when all was whole again. The writer
has ended by then, since another invalidation of the key would hide the loss.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.acceptance.partitions.checker import Bounds, History, no_stale_reads
from tests.acceptance.partitions.events import events_in
from tests.acceptance.partitions.nemesis import Fault, Nemesis
from tests.acceptance.partitions.topologies import MASTER, TOPOLOGIES, Fleet

if TYPE_CHECKING:
    from tests.acceptance.partitions.topologies import Topology

SPLIT_SECONDS, PAUSE_SECONDS, WRITING_SECONDS = 10.0, 3.0, 8


def split_of(topology: Topology) -> Fault:
    """Return the split of the cache."""
    clients = {topology.writer, topology.readers[0], topology.workers[0]}
    others = {*topology.cache, *topology.sentinels, *topology.workers, *topology.readers} - clients
    return Fault("the cache is split", frozenset({MASTER, *clients}), frozenset(others), seconds=SPLIT_SECONDS)


def record(folder: Path, topology: Topology, splits: int, min_replicas: int, replicas: int, seed: int) -> None:
    """Let a fleet work while its cache is split so many times."""
    with ExitStack() as stack:
        fleet = Fleet(stack, topology, folder, min_replicas=min_replicas)
        fleet.start_workers()
        fleet.start_readers(seed)
        nemesis = Nemesis(fleet)
        options = ("--by-key", "1", "--replicas", str(replicas), "--seconds", str(WRITING_SECONDS))
        for number in range(splits):
            fleet.start_client(topology.writer, seed + number, *options)
            nemesis.inject([split_of(topology)], PAUSE_SECONDS)
        fleet.end_clients()


def figures(folder: Path) -> dict[str, Any]:
    """Return what a history shows."""
    history = History(events_in(folder), Bounds())
    last_read: dict[int, float] = {}
    for finding in no_stale_reads(history):
        done, read = finding.events[0], finding.events[-1]
        last_read[id(done)] = max(last_read.get(id(done), 0.0), read["end"])
    whole = [heal["end"] for heal in history.by_kind["heal"]]
    by_replicas: dict[str, list[dict[str, Any]]] = defaultdict(list)
    refused = 0
    for fault in history.by_kind["fault"]:
        healed = next(end for end in whole if end >= fault["end"])
        for done in history.by_kind["invalidate"]:
            if fault["start"] <= done["end"] <= fault["end"]:
                refused += not done["ok"]
                if done["ok"]:
                    seen = last_read.get(id(done), 0.0)
                    stale = max(0.0, seen - done["end"])
                    by_replicas[_asked(done)].append({"stale": stale, "lost": seen > healed, "split": fault["start"]})
    return {
        "splits": len(history.by_kind["fault"]),
        "refused": refused,
        "acknowledged": {asked: _summary(found) for asked, found in sorted(by_replicas.items())},
        "seconds_until_whole": round(
            statistics.median(heal["end"] - heal["start"] for heal in history.by_kind["heal"]), 1
        ),
    }


def _asked(done: dict[str, Any]) -> str:
    if not done.get("replicas"):
        return "replicas=0"
    return f"replicas={done['replicas']}, {'' if done['replicated'] else 'not '}replicated"


def _summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "acknowledged": len(found),
        "contradicted": sum(one["stale"] > 0 for one in found),
        "lost": sum(one["lost"] for one in found),
        "splits_with_a_loss": len({one["split"] for one in found if one["lost"]}),
    }


def main() -> None:
    """Record a history and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--topology", choices=["sentinel", "cluster"], default="sentinel")
    for name, default in {"splits": 10, "min-replicas": 0, "replicas": 1, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    topology = TOPOLOGIES[options.topology]
    record(options.folder, topology, options.splits, options.min_replicas, options.replicas, options.seed)
    print(json.dumps(figures(options.folder), indent=1))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
