"""However a load ends, it counts for its key: after a few loads the key backs off, and a dead letter says why."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from refresher.embedded import GuardedProcess
from refresher.flow.dead_letters import DeadLetter, DeadLetters
from tests.acceptance.conftest import System
from tests.support.ending_loaders import ENDS_PROCESS, LOCK_FOLDER, OVERLAPS, QUERY, RAISES
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("patient_publishers")

SETTINGS = {
    "REFRESHER_QUERIES": "tests.support.ending_loaders",
    "CACHE_XFETCH_TIMEOUT": "1s",  # the soft limit is 5 s later, the hard one 15 s
    "CACHE_XFETCH_RETRY_BACKOFF": "1",
    "CACHE_COOLING": "10m",
    "STAMPEDE_LOCK_TIMEOUT_MS": f"{1_000 * MAX_WAIT_SECONDS:.0f}",
}
RETRY_MAX = 3


class Scene:
    """A worker under a supervisor, and a reader that goes on reading however the loads end."""

    def __init__(self, system: System, *worker: str) -> None:
        self.system, self.client, self._arguments = system, system.client(), worker
        self.exit_codes: list[int] = []
        self.logs: list[str] = []
        self._letters = DeadLetters(system.cache, "cache")
        self.worker = self.start()

    def start(self) -> GuardedProcess:
        return self.system.start_worker(*self._arguments, app="tests.support.event_counting_app")

    def supervise(self) -> None:
        """Restart the worker if it has ended; keep its exit code and the end of its log."""
        if (code := self.worker.poll()) is not None:
            self.exit_codes.append(code)
            self.logs.append(self.worker.tail_of_log(100))
            self.worker = self.start()

    def stale(self, key: str, end: str) -> None:
        """Load a key, and make it stale: from now on each of its loads ends as `end` says."""
        self.client.get(QUERY, {"key": key})
        self.system.control.set(f"ends:{key}", end)
        self.client.invalidate(QUERY, {"key": key})

    def letters(self) -> dict[Any, DeadLetter]:
        """The dead letters, by key."""
        return {letter.params["key"]: letter for letter in self._letters.newest() if letter.params}

    def until_dead_lettered(self, keys: Sequence[str]) -> dict[Any, DeadLetter]:
        """Read all keys, over and over, until each has a dead letter; each read is served the stale value."""

        def all_dead_lettered() -> bool:
            self.supervise()
            for key in keys:
                assert self.client.get(QUERY, {"key": key})["load"] == 1
            return set(self.letters()) >= set(keys)

        eventually(all_dead_lettered, f"all of {len(keys)} keys are dead-lettered")
        return self.letters()

    def loads(self, key: str) -> int:
        """Return the number of loads since the key is stale."""
        return self.system.loads(key) - 1

    def process_of(self, key: str) -> int:
        """The process of the newest load."""
        return int(self.system.control.lindex(f"calls:{key}", -1) or 0)

    def overlaps(self) -> list[str]:
        """Return the keys of which two loads were under way at a time."""
        return self.system.control.lrange(OVERLAPS, 0, -1)


@pytest.fixture
def loaders(system_without_graph: System, tmp_path: Path) -> System:
    system_without_graph.env |= SETTINGS | {LOCK_FOLDER: str(tmp_path)}
    return system_without_graph


@pytest.mark.failure("W9")
def test_hanging_loads_are_dead_lettered_while_their_keys_are_read(loaders: System) -> None:
    scene = Scene(loaders, "-c", "4")
    ends = {f"hanging {number}": "hangs" for number in range(4)} | {"deaf": "hangs deaf"}
    for key, end in ends.items():
        scene.stale(key, end)
    letters = scene.until_dead_lettered(list(ends))
    assert {letter.kind for key, letter in letters.items() if ends[key] == "hangs"} == {"timeout"}
    assert letters["deaf"].kind == "hard_timeout"
    assert {key: (scene.loads(key), letters[key].attempts) for key in ends} == dict.fromkeys(ends, (2, 2))
    assert scene.overlaps() == []
    assert scene.exit_codes == []


@pytest.mark.failure("W11")
@pytest.mark.parametrize("ends", [RAISES, ENDS_PROCESS], ids=["raises", "ends its process"])
def test_loads_that_would_end_their_worker_are_dead_lettered_without_further_reads(
    loaders: System, ends: dict[str, object]
) -> None:
    loaders.env["CACHE_XFETCH_TIMEOUT"] = f"{MAX_WAIT_SECONDS}s"
    scene = Scene(loaders, "-c", "4")
    for end in ends:
        scene.stale(end, end)
        scene.client.get_entry(QUERY, {"key": end})  # once: it triggers the refresh
    eventually(lambda: set(scene.letters()) >= set(ends), f"all of {len(ends)} keys are dead-lettered")
    # By then any further load shows: a message that comes round does so within milliseconds.
    for end in ends:
        scene.client.get(QUERY, {"key": f"other than {end}"})
    loads = {"sys.exit": 1, "MemoryError": 1 + RETRY_MAX}
    assert {end: scene.loads(end) for end in ends} == {end: loads.get(end, 2) for end in ends}
    kind = "loader_error" if ends is RAISES else "worker_lost"
    assert {end: letter.kind for end, letter in scene.letters().items()} == dict.fromkeys(ends, kind)
    assert scene.overlaps() == []
    assert scene.worker.poll() is None


@pytest.mark.failure("W11")
def test_sigterm_to_a_pool_process_counts_as_a_failure_unless_its_worker_is_shutting_down(
    loaders: System,
) -> None:
    loaders.env["CACHE_XFETCH_TIMEOUT"] = f"{MAX_WAIT_SECONDS}s"
    scene = Scene(loaders, "-c", "1")
    scene.stale("a", "hangs")
    scene.client.get_entry(QUERY, {"key": "a"})
    for load in (1, 2):
        eventually(lambda: scene.loads("a") == load, f"load {load} has begun")  # noqa: B023
        os.kill(scene.process_of("a"), signal.SIGTERM)
    eventually(lambda: scene.letters().get("a"), "it is dead-lettered")
    assert (scene.letters()["a"].kind, scene.loads("a")) == ("worker_lost", 2)

    scene.stale("b", "hangs")
    scene.client.get_entry(QUERY, {"key": "b"})
    eventually(lambda: scene.loads("b") == 1, "a load has begun")
    os.kill(scene.worker.pid, signal.SIGTERM)
    eventually(lambda: "Warm shutdown" in scene.worker.log_file.read_text(), "the worker has begun to end")
    os.kill(scene.process_of("b"), signal.SIGTERM)  # as a service manager does, which signals all processes
    assert scene.worker.wait(MAX_WAIT_SECONDS) == 0
    assert loaders.record(scene.client.key(QUERY, {"key": "b"}))["state"] == "queued"
    loaders.control.delete("ends:b")
    scene.supervise()
    eventually(lambda: scene.client.get(QUERY, {"key": "b"})["load"] == 3, "the next worker has loaded it")
    assert "b" not in scene.letters()
    assert scene.overlaps() == []


@pytest.mark.failure("W12")
@pytest.mark.parametrize("pool", ["threads", pytest.param("solo", marks=pytest.mark.long)])
def test_a_load_that_hangs_in_a_pool_without_limits_ends_its_worker_and_is_dead_lettered(
    loaders: System, pool: str
) -> None:
    scene = Scene(loaders, "-P", pool, "-c", "4")
    scene.stale("a", "hangs")
    letter = scene.until_dead_lettered(["a"])["a"]
    assert (letter.kind, letter.attempts, scene.loads("a")) == ("hard_timeout", 2, 2)
    eventually(lambda: scene.supervise() or len(scene.exit_codes) == 2, "the second load has ended its worker, too")
    assert scene.exit_codes == [1, 1]
    assert all("exceeded the hard time limit of 16 s" in log for log in scene.logs)
    assert scene.client.get(QUERY, {"key": "another"})["load"] == 1
    assert scene.overlaps() == []


@pytest.mark.failure("W13")
def test_a_load_that_ends_its_whole_worker_is_dead_lettered(loaders: System) -> None:
    loaders.env["STAMPEDE_LOCK_TIMEOUT_MS"] = "5000"  # nothing but its end shows that the worker is gone
    scene = Scene(loaders, "-P", "solo")
    scene.stale("a", "os._exit(1)")
    letter = scene.until_dead_lettered(["a"])["a"]
    assert (letter.kind, letter.attempts, scene.loads("a")) == ("taken_over", 1 + RETRY_MAX, 1 + RETRY_MAX)
    assert scene.exit_codes == [1] * (1 + RETRY_MAX)
    assert scene.overlaps() == []
