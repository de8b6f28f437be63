"""Workers whose loads misbehave, or that reach a real Neo4j through a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from api_client import CacheClient, EntryState
from refresher.embedded import GuardedProcess
from tests.acceptance.conftest import System
from tests.support.event_counting_app import EVENT_COUNTS
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import eventually

QUICK = {"CACHE_COOLING": "1s", "CACHE_XFETCH_RETRY_BACKOFF": "1"}
POOLS = {"prefork": ("-P", "prefork"), "threads": ("-P", "threads")}


class Watched:
    """A system with a worker that counts its events, and a reader."""

    def __init__(self, system: System) -> None:
        self.system = system
        system.env |= {"REFRESHER_QUERIES": "tests.support.scripted_queries,tests.support.bad_loaders"}
        self.client: CacheClient = system.client()

    def start(self, *args: str, **env: str) -> GuardedProcess:
        return self.system.start_worker(*args, app="tests.support.event_counting_app", **(QUICK | env))

    def count_of(self, word: str) -> int:
        return int(self.system.control.hget(EVENT_COUNTS, word) or 0)

    def all_counts(self) -> dict[str, str]:
        return self.system.control.hgetall(EVENT_COUNTS)

    def let(self, key: str, misdeed: str | None) -> None:
        """Set what the loads of a key do from now on; None: they succeed."""
        if misdeed is None:
            self.system.control.delete(f"does:{key}")
        else:
            self.system.control.set(f"does:{key}", misdeed)

    def fresh(self, query: str, key: str) -> int:
        """Load a key, and return its token."""
        return self.client.get_entry(query, {"key": key}).token

    def stale(self, query: str, key: str) -> int:
        """Load a key, make it stale, trigger its refresh, and return its token."""
        token = self.fresh(query, key)
        self.client.invalidate(query, {"key": key})
        entry = self.client.get_entry(query, {"key": key})
        assert (entry.state, entry.token) == (EntryState.STALE, token)
        return token

    def is_newer(self, query: str, key: str, token: int) -> bool:
        """Read a key, which is served at once whatever its loads do, and return whether its token is newer."""
        return bool(self.client.get_entry(query, {"key": key}).token > token)

    def goes_on(self, worker: GuardedProcess, query: str, key: str, token: int) -> None:
        """Check that a key is fresh again, its record gone, its worker alive, and that other keys are loaded."""
        eventually(lambda: self.is_newer(query, key, token), f"{key} is fresh again")
        cache_key = self.client.key(query, {"key": key})
        eventually(lambda: not self.system.record(cache_key), "no record is left")
        assert self.client.get_entry(query, {"key": key}).state is EntryState.FRESH
        self.fresh("misbehaves", f"other than {key}")
        assert worker.poll() is None


@pytest.fixture
def watched(system: System) -> Watched:
    """On the embedded graph, which stays healthy."""
    return Watched(system)


@pytest.fixture
def graph_proxy(stack: ExitStack, neo4j_system: System) -> Iterator[FaultProxy]:
    """In front of Neo4j."""
    with FaultProxy.before(neo4j_system.env["NEO4J_URI"]) as proxy:
        neo4j_system.env["NEO4J_URI"] = proxy.url(neo4j_system.env["NEO4J_URI"])
        yield proxy
        proxy.passes()


@pytest.fixture
def behind_proxy(graph_proxy: FaultProxy, neo4j_system: System) -> Watched:
    """On a real Neo4j, behind the proxy."""
    return Watched(neo4j_system)
