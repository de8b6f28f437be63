"""Each defect put in by hand is found, on real servers and processes; without one nothing is."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from api_client.trigger.claim_and_publish import REPUBLISH_SECONDS
from refresher.embedded import ArcadeDbServer, GuardedProcess
from tests.acceptance.conftest import ROOT, System
from tests.acceptance.partitions.checker import Bounds, Verdict, check
from tests.acceptance.partitions.defects import DEFECTS, Defect
from tests.acceptance.partitions.drawing import draw_violations
from tests.acceptance.partitions.events import Log, events_in
from tests.acceptance.partitions.worker import NODES, name_of
from tests.servers.redis_sentinels import Sentinels
from tests.support.graph_session import watched_nodes
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * MAX_WAIT_SECONDS)]

SETTINGS = {
    "REFRESHER_QUERIES": "tests.acceptance.partitions.worker",
    "HISTORY_TTL": "5s",
    "CACHE_QUEUE_TTL": "2s",
    "CACHE_RECORD_RETENTION": "1s",
    "CACHE_REDIS_TIMEOUT": "1s",
    "STAMPEDE_LOCK_TIMEOUT_MS": "1500",
    "STAMPEDE_WAIT_TIMEOUT_MS": "5000",
}
BOUNDS = Bounds(settle=5.0, stale=15.0, ttl=6.0, read=MAX_WAIT_SECONDS)
TURN_SECONDS, SOUND_SECONDS, ENOUGH = 2.0, 30.0, 100
CUT_OFF, LOST, PAUSE = "the master is cut off", "messages are lost", "workers pause"


class World:
    """Two readers, a writer and a worker that have a defect, and what happens to them."""

    def __init__(self, stack: ExitStack, system: System, folder: Path, name: str, defect: Defect) -> None:
        self._system, self._folder, self._defect = system, folder, defect
        self._nemesis, self._wait = Log(folder / "here-nemesis-0.jsonl"), threading.Event().wait
        self._sentinels = Sentinels(stack) if CUT_OFF in defect.while_ else None
        url = {"CACHE_REDIS_URL": self._sentinels.url()} if self._sentinels else {}
        system.env |= SETTINGS | url | {"HISTORY_DEFECT": name} | defect.env
        sound = {"HISTORY_DEFECT": ""} if defect.only_in_readers else {}
        log = {"HISTORY_LOG": str(folder / "b-worker")}
        self._worker = system.start_worker("-c", "2", app="tests.acceptance.partitions.defects", **log, **sound)
        writing = ("--by-key", "0.3", "--pause", str(defect.pause_seconds), "--hard", str(defect.hard_share))
        for role, *more in (("sync",), ("local",), ("writer", *writing)):
            argv = [sys.executable, "-m", "tests.acceptance.partitions.defects", role, *more]
            path = folder / f"a-{role}-0.jsonl"
            program = GuardedProcess.start(
                [*argv, "--log", str(path)], env=system.env | (sound if role == "writer" else {}), cwd=ROOT,
                log_file=folder / f"{role}.log",
            )  # fmt: skip
            stack.callback(program.kill)

    def verdict(self) -> Verdict:
        """Let happen what has to, and check all until now."""
        worker = psutil.Process(self._worker.pid)
        loses, pool = LOST in self._defect.while_, worker.children()
        if loses:  # what is published while nobody takes it, and what is published again then
            self._wait(-time.monotonic() % REPUBLISH_SECONDS)
        paused = [worker, *pool] if loses else pool[-1:] if PAUSE in self._defect.while_ else []
        for process in paused:
            process.suspend()
        self._wait(TURN_SECONDS)
        if loses:
            self._system.broker.delete("cache.refresh", "cache.refresh-miss")
        for process in reversed(paused):
            process.resume()
        if self._sentinels is not None and len(events_in(self._folder)) > 1_000:
            self._nemesis.write("fault", name=CUT_OFF, hosts=["cache"])
            self._sentinels.cut_off_master()
            self._nemesis.write("heal")
            self._sentinels = None
        records = [key for key in self._system.cache.scan_iter() if b":l1:" in key]
        left = [key.decode("latin-1") for key in records if self._system.cache.pttl(key) == -1]
        self._nemesis.write("quiet", left=left)
        return check(events_in(self._folder), BOUNDS)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(
    stack: ExitStack, system: System, arcadedb: ArcadeDbServer, tmp_path: Path, name: str
) -> None:
    stack.enter_context(watched_nodes(arcadedb, [name_of(number) for number in range(NODES)]))
    world, began = World(stack, system, tmp_path, name, DEFECTS[name]), time.monotonic()

    def found() -> Verdict | None:
        verdict = world.verdict()
        return verdict if any(one.rule == DEFECTS[name].rule for one in verdict.violations) else None

    verdict = eventually(found, f"rule {DEFECTS[name].rule} is broken by {name}")
    pictures = draw_violations(verdict, tmp_path)
    print(f"{name}: {time.monotonic() - began:.1f} s; {pictures}", verdict, sep="\n")  # noqa: T201 - with -rA or -s
    assert (tmp_path / f"{DEFECTS[name].rule}.svg") in pictures


# A paused worker's lease ends, and its load goes on when it continues, at the same time as another.
@pytest.mark.parametrize(("while_", "excused"), [("", set()), (f"{PAUSE}, {LOST}", {"load"})], ids=["calm", "faults"])
def test_without_a_defect_nothing_is_found(
    stack: ExitStack, system: System, arcadedb: ArcadeDbServer, tmp_path: Path, while_: str, excused: set[str]
) -> None:
    stack.enter_context(watched_nodes(arcadedb, [name_of(number) for number in range(NODES)]))
    world, end = World(stack, system, tmp_path, "", Defect("", while_=while_)), time.monotonic() + SOUND_SECONDS
    verdict = eventually(lambda: (seen := world.verdict()) and time.monotonic() > end and seen, "the run is over")
    print(verdict)  # noqa: T201 - with -rA or -s
    found = [one for one in verdict.violations if one.rule not in excused]
    assert found == [], f"{verdict}\n{draw_violations(verdict, tmp_path)}"
    assert len(verdict.history.reads) > ENOUGH < len(verdict.history.by_kind["load"])
