"""However a load ends, it is counted for its key: after a few loads the key cools, and a dead letter says why."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from refresher.dead_letters import DeadLetter, DeadLetters
from refresher.embedded import GuardedProcess, RedisServer
from tests.acceptance.conftest import NO_GRAPH, System
from tests.support.ending_loaders import LOCK_FOLDER, OVERLAPS, QUERY
from tests.support.requirements import full_runs_only
from tests.support.waiting import eventually

pytestmark = full_runs_only

SETTINGS = {
    "REFRESHER_QUERIES": "tests.support.ending_loaders",
    "CACHE_XFETCH_TIMEOUT": "1s",  # the soft limit is 5 s later, the hard one 15 s
    "CACHE_XFETCH_RETRY_BACKOFF": "1",
    "CACHE_COOLING": "10m",
}


class Scene:
    """A worker under a supervisor, and a reader that goes on reading whatever becomes of the loads."""

    def __init__(self, system: System, *worker: str) -> None:
        self.system, self.client, self._arguments = system, system.client(), worker
        self.exit_codes: list[int] = []
        self._letters = DeadLetters(system.cache, "cache")
        self.worker = self.start()

    def start(self) -> GuardedProcess:
        return self.system.start_worker(*self._arguments, app="tests.support.telling_app")

    def supervise(self) -> None:
        """Start the worker anew where it has ended."""
        if (code := self.worker.poll()) is not None:
            self.exit_codes.append(code)
            self.worker = self.start()

    def stale(self, key: str, end: str) -> None:
        """Load a key, and make it stale: from now on each of its loads ends as `end` says."""
        self.client.get(QUERY, {"key": key}, timeout=30)
        self.system.control.set(f"ends:{key}", end)
        self.client.invalidate(QUERY, {"key": key})

    def letters(self) -> dict[Any, DeadLetter]:
        """The dead letters, by key."""
        return {letter.params["key"]: letter for letter in self._letters.newest() if letter.params}

    def until_given_up(self, keys: Sequence[str], within_seconds: float) -> dict[Any, DeadLetter]:
        """Read all keys, over and over, until each has a dead letter; each read is served the stale value."""

        def given_up() -> bool:
            self.supervise()
            for key in keys:
                assert self.client.get(QUERY, {"key": key})["load"] == 1
            return set(self.letters()) >= set(keys)

        eventually(given_up, within_seconds, f"all of {len(keys)} keys are given up")
        return self.letters()

    def loads(self, key: str) -> int:
        """How many loads there were since the key is stale."""
        return self.system.loads(key) - 1

    def overlaps(self) -> list[str]:
        """The keys of which two loads were under way at a time."""
        return self.system.control.lrange(OVERLAPS, 0, -1)


@pytest.fixture
def loaders(stack: ExitStack, redis_server: RedisServer, tmp_path: Path) -> System:
    """A system without a graph: these loaders ask none."""
    system = System(stack, stack.enter_context(RedisServer.start()), redis_server, NO_GRAPH, tmp_path)
    system.env |= SETTINGS | {LOCK_FOLDER: str(tmp_path)}
    return system


def test_loads_that_hang_are_given_up_while_their_keys_are_read(loaders: System) -> None:
    scene = Scene(loaders, "-c", "4")
    ends = {f"hanging {number}": "hangs" for number in range(4)} | {"deaf": "hangs deaf"}
    for key, end in ends.items():
        scene.stale(key, end)
    letters = scene.until_given_up(list(ends), 150)
    assert {letter.kind for key, letter in letters.items() if ends[key] == "hangs"} == {"timeout"}
    assert letters["deaf"].kind == "hard_timeout"
    assert {key: (scene.loads(key), letters[key].attempts) for key in ends} == dict.fromkeys(ends, (2, 2))
    assert scene.overlaps() == []
    assert scene.exit_codes == []
