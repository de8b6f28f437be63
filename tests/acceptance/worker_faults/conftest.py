"""Workers, readers and servers with a recording proxy before each server; after each case a checker evaluates all."""

from __future__ import annotations

import itertools
import json
import os
import signal
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import redis

from api_client import CacheClient, CacheError, Entry, EntryState
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from tests.acceptance.conftest import System
from tests.support.history import Happened, key_in
from tests.support.history_checker import End, Verdict, check_history
from tests.support.recording_proxy import RecordingProxy
from tests.support.recording_worker import PATIENT, RECORDED_EVENTS
from tests.support.timing import promptly
from tests.support.versioned_queries import VERSIONED
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

LEASE_SECONDS: Final = 2.5
QUEUE_TTL_SECONDS: Final = 8.0
REPUBLISH_SECONDS: Final = 5.0
COOLING_SECONDS: Final = 1.0
RETENTION_SECONDS: Final = 1.0
BUDGET_SECONDS: Final = 30.0
SLACK_SECONDS: Final = 10.0  # for queue wait and load; a message that has to be delivered again takes minutes
WITHIN_LEASE_SECONDS: Final = LEASE_SECONDS + 1.0 + SLACK_SECONDS
"""I4: lease time + queue wait + load time + 1 s; the two in the middle are what the slack has room for."""
WITHIN_QUEUE_TTL_SECONDS: Final = WITHIN_LEASE_SECONDS + QUEUE_TTL_SECONDS
"""I4, where the message was lost."""

WORKER_BACK_SECONDS: Final = 10.0
"""After the broker is back, or a half-open link was lost."""
BROKER_BREAKER_SECONDS: Final = 5.0
"""The longest pause of the readers' breaker before the broker, after outages like those of these tests."""
WITHIN_BROKER_OUTAGE_SECONDS: Final = max(WORKER_BACK_SECONDS, BROKER_BREAKER_SECONDS) + WITHIN_QUEUE_TTL_SECONDS

REJECTED: Final = frozenset({"rejected (lost)", "rejected (superseded)"})
"""How a run ends whose record is gone: the second, if the key was acquired again before its commit."""

SETTINGS: Final = {
    "STAMPEDE_LOCK_TIMEOUT_MS": f"{LEASE_SECONDS * 1000:.0f}",
    "STAMPEDE_JITTER_MAX_MS": "0",
    "CACHE_REDIS_TIMEOUT": "5s",  # for how long a reader waits on a connection that has gone silent
    "STAMPEDE_WAIT_TIMEOUT_MS": "5000",  # one key's miss is not to keep others from being read
    "CACHE_QUEUE_TTL": f"{QUEUE_TTL_SECONDS}s",
    "CACHE_COOLING": f"{COOLING_SECONDS}s",
    "CACHE_RECORD_RETENTION": f"{RETENTION_SECONDS}s",
    "CACHE_XFETCH_TIMEOUT": f"{BUDGET_SECONDS}s",
    "CACHE_XFETCH_RETRY_BACKOFF": "1",
    "REFRESHER_QUERIES": "tests.support.versioned_queries",
}
_PATIENT_SECONDS: Final = 2 * MAX_WAIT_SECONDS
STEADY_CACHE: Final = dict.fromkeys(("CACHE_REDIS_TIMEOUT", "CACHE_REDIS_REPLY_TIMEOUT"), f"{_PATIENT_SECONDS}s")
"""For cases without a fault of the cache: a busy machine exceeds no timeout of it."""
LONG_LEASE: Final = {"STAMPEDE_LOCK_TIMEOUT_MS": f"{_PATIENT_SECONDS * 1000:.0f}"}
PATIENT_SETTINGS: Final = (
    SETTINGS
    | STEADY_CACHE
    | LONG_LEASE
    | {PATIENT: "1"}
    | dict.fromkeys(("CACHE_QUEUE_TTL", "CACHE_XFETCH_TIMEOUT"), f"{_PATIENT_SECONDS}s")
)
"""For cases whose claims and runs are counted: none ends by time, however busy the machine, unless the case lets it."""
_numbers = itertools.count(1)


class World:
    """The system of one module. Its cases use keys of their own, and repair what they break: each ends with `verify`.

    ``cache_proxy`` and ``broker_proxy`` are the proxies; ``cache`` and ``broker`` clients that bypass them.
    """

    def __init__(
        self, stack: ExitStack, parts: System, cache: RedisServer, broker: RedisServer, settings: dict[str, str]
    ) -> None:
        self.parts, self.cache_server, self.broker_server = parts, cache, broker
        self.cache_proxy = stack.enter_context(RecordingProxy.before(cache.url()))
        self.broker_proxy = stack.enter_context(RecordingProxy.before(broker.url()))
        self.history = self.cache_proxy.history
        parts.env |= settings | {
            "CACHE_REDIS_URL": self.cache_proxy.url(cache.url(0)),
            "CACHE_BROKER_URL": self.broker_proxy.url(broker.url(1)),
        }
        self.cache = stack.enter_context(redis.Redis.from_url(cache.url(0)))
        self.broker = stack.enter_context(redis.Redis.from_url(broker.url(1)))
        self.control = parts.control
        self.client = parts.client()
        self.is_recorded = True
        self.is_at_rest = True
        self.keys: dict[str, int] = {}
        self.workers: list[GuardedProcess] = []
        self._reported_before: Counter[str] = Counter()

    def uses(self, cache_url: str) -> None:
        """Use the cache by this URL, past the proxy: nothing is recorded then."""
        self.is_recorded = False
        self.parts.env["CACHE_REDIS_URL"] = cache_url
        self.client = self.parts.client()

    def new_key(self) -> str:
        """Return a key that no case has used."""
        key = f"key-{next(_numbers)}"
        self.keys[key] = 0
        return key

    def tag(self, key: str) -> str:
        """Return what entry and record of the key share, as in the history."""
        return key_in(self.client.key(VERSIONED, {"key": key}).entry)

    def worker(self, *args: str, **changes: str) -> GuardedProcess:
        """The worker that runs; one is started where there is none."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        return self.workers[0] if self.workers else self.add_worker(*args, **changes)

    def add_worker(self, *args: str, **changes: str) -> GuardedProcess:
        """Start one more."""
        worker = self.parts.start_worker(*args, app="tests.support.recording_worker", **changes)
        self.workers.append(worker)
        return worker

    def ends_workers(self) -> None:
        """End all that run."""
        while self.workers:
            self.workers.pop().terminate()

    def write(self, key: str, client: CacheClient | None = None, **options: Any) -> None:
        """Change the source and invalidate: from here on every fresh value has to be of this version.

        With ``replicas``, only if that many have the invalidation: a failover may lose any other.
        """
        version = int(self.control.incr(f"version:{key}"))
        self.history.note(Happened.WROTE, key=self.tag(key), version=version)
        invalidation = (client or self.client).invalidate(VERSIONED, {"key": key}, **options)
        if invalidation.replicated or not options.get("replicas"):
            self.keys[key] = version

    def read(self, key: str, client: CacheClient | None = None, **options: Any) -> Entry[Any]:
        """Read; a fresh value that is older than the last invalidation that has returned fails the test."""
        least = self.keys[key]
        entry = (client or self.client).get_entry(VERSIONED, {"key": key}, **options)
        if entry.state is EntryState.FRESH:
            assert entry.value["version"] >= least, f"{key}: version {entry.value} served as fresh, {least} invalidated"
        return entry

    def stale_key(self) -> str:
        """Return a key with a stale entry whose refresh has not been triggered."""
        self.worker()
        key = self.new_key()
        self.read(key, timeout=MAX_WAIT_SECONDS)
        # A message that waited for more than a second was published twice; the second one would refresh the key.
        eventually(lambda: not self._messages(key), "nothing refreshes it")
        self.write(key)
        return key

    def runs(self, key: str) -> list[str]:
        """How the runs of a key have ended so far."""
        return check_history(self.history).runs.get(self.tag(key), [])

    def claims(self, key: str) -> list[str]:
        """How its claims have ended so far."""
        return check_history(self.history).claims.get(self.tag(key), [])

    def count_of(self, outcome: str) -> int:
        """Return how often workers have reported this outcome in this case."""
        return int(self.control.lrange(RECORDED_EVENTS, 0, -1).count(outcome))

    def loads(self, key: str) -> list[int]:
        """The process of each of its loads."""
        return [int(pid) for pid in self.control.lrange(f"calls:{key}", 0, -1)]

    def hold(self, key: str) -> None:
        """Let loads of the key wait."""
        self.control.set(f"held:{key}", 1)

    def start_held_load(self, key: str) -> None:
        """Trigger the refresh of a stale key, and return once its load has begun; it waits until `let_go`."""
        before = len(self.loads(key))
        self.hold(key)
        self.read(key)
        eventually(lambda: len(self.loads(key)) > before, "the load has begun")

    def let_go(self, key: str) -> None:
        """Release held loads, and hold later ones no more."""
        self.control.delete(f"held:{key}")
        self.control.rpush(f"gate:{key}", *["open"] * 10)

    def let_lapse(self, key: str) -> None:
        """Let a claim or a lease end now, as if its length had passed: its deadline moves into the past."""
        record = self.client.key(VERSIONED, {"key": key}).record
        now_us = self.parts.now_us()
        until_us = self.cache.hget(record, "until")
        assert until_us is not None, f"{key} is neither claimed nor leased"
        assert int(until_us) - now_us <= _PATIENT_SECONDS * 1e6
        self.history.note(Happened.CLOCK_MOVED)
        self.cache.hset(record, "until", now_us - 1)

    def is_fresh(self, key: str, client: CacheClient | None = None) -> bool:
        """Return whether a read now gives a fresh value; `read` checks that it is not too old."""
        try:
            return self.read(key, client).state is EntryState.FRESH
        except CacheError:  # a breaker that is still open
            return False

    def verify(self, *, within_seconds: float, killed: bool = False) -> Verdict:
        """Read each key until it is fresh, wait until all is idle, and check the history; return the verdict.

        Args:
            within_seconds: how long the keys may take, on a machine that lets everything run.
            killed: whether a process of a worker was killed, so that it did not report all that it did.
        """
        waiting = set(self.keys)

        def all_fresh() -> bool:
            waiting.difference_update([key for key in waiting if self.is_fresh(key)])
            return not waiting

        try:
            promptly(all_fresh, f"all of {len(waiting)} keys are fresh again", within_seconds)
        except AssertionError as error:
            for key in waiting:
                error.add_note(f"{key}, {self._messages(key)} messages:\n{self.history.of_key(self.tag(key))}")
            raise
        assert self.client.flush(MAX_WAIT_SECONDS)
        self._comes_to_rest()
        verdict = check_history(self.history)
        assert not verdict.faults, "\n".join(line for fault in verdict.faults for line in self._explained(fault))
        eventually(lambda: self._adds_up(verdict, killed=killed), "what the workers reported is what Redis saw")
        self.is_at_rest = True
        return verdict

    def _explained(self, fault: str) -> tuple[str, str]:
        return fault, self.history.of_key(key_in(fault))

    def _comes_to_rest(self) -> None:
        records = [key for key in self.cache.scan_iter() if b":l1:" in key]
        assert [key for key in records if self.cache.pttl(key) == -1] == []
        eventually(self._broker_is_empty, "all messages are acknowledged")

        def others() -> list[bytes]:
            return [
                key
                for key in self.cache.scan_iter()
                if b":e1:" not in key and b":v1:" not in key and not key.endswith(b":dead1")
            ]

        eventually(lambda: not others(), "nothing is left but entries and live versions")

    def _broker_is_empty(self) -> bool:
        """Whether nothing is queued or unacknowledged. What killed workers had taken is due for redelivery at once."""
        taken = self.broker.zrange("unacked_index", 0, -1)
        if taken:
            self.broker.zadd("unacked_index", dict.fromkeys(taken, 0), xx=True)
        names = ("unacked", "cache.refresh", "cache.refresh-miss")
        return not self.broker.exists(*names)

    def _messages(self, key: str) -> int:
        """How many messages of the key are queued, or not acknowledged."""
        queued = [line for name in ("cache.refresh", "cache.refresh-miss") for line in self.broker.lrange(name, 0, -1)]
        envelopes = [json.loads(line) for line in queued]
        envelopes += [json.loads(taken)[0] for taken in self.broker.hvals("unacked")]
        return sum(f'\\"{key}\\"' in b64decode(envelope["body"]).decode() for envelope in envelopes)

    def _adds_up(self, verdict: Verdict, *, killed: bool) -> bool:
        if not self.is_recorded:
            return True
        seen = verdict.reported_runs - self._reported_before
        # A skipped message may be a late one, of the case before.
        reported = Counter(
            end for end in self.control.lrange(RECORDED_EVENTS, 0, -1) if not end.startswith(End.SKIPPED)
        )
        return reported <= seen if killed else reported == seen

    def begin(self) -> None:
        """Begin a case: forget the ones before."""
        self.is_at_rest = False
        self.keys.clear()
        self.control.delete(RECORDED_EVENTS, "failing")
        self._reported_before = check_history(self.history).reported_runs


def kill(pid: int) -> None:
    """SIGKILL, and be back when it has ended."""
    process = psutil.Process(pid)
    os.kill(pid, signal.SIGKILL)
    process.wait(MAX_WAIT_SECONDS)


@contextmanager
def stopped(worker: GuardedProcess) -> Iterator[None]:
    """SIGSTOP to all processes of a worker, and SIGCONT at the end."""
    family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    for process in family:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(family):
            process.resume()


def make_world(
    stack: ExitStack,
    cache: RedisServer,
    control: RedisServer,
    graph: ArcadeDbServer,
    folder: Path,
    settings: dict[str, str] = SETTINGS,
) -> World:
    """Start the broker, and make a world; its worker starts when one is needed."""
    broker = stack.enter_context(RedisServer.start())
    return World(stack, System(stack, cache, control, graph, folder), cache, broker, settings)


def replica_of(stack: ExitStack, master: RedisServer) -> RedisServer:
    """Start a replica that may replace its master, as the master may it; return it once it replicates."""
    joins = [("replicaof", f"{master.host} {master.port}"), ("masterauth", master.password)]
    replica = stack.enter_context(RedisServer.start(password=master.password, extra_config=joins))
    with redis.Redis.from_url(master.url()) as client:
        client.config_set("masterauth", master.password)
    with redis.Redis.from_url(replica.url()) as client:
        eventually(lambda: client.info("replication")["master_link_status"] == "up", "it replicates")
    return replica


class Worlds:
    """The world of a module; another one after a case that did not bring it to rest."""

    def __init__(self, make: Callable[[ExitStack], World]) -> None:
        self._make, self._stack = make, ExitStack()
        self._world: World | None = None

    def current(self) -> World:
        """Return the world, at rest."""
        if self._world is None or not self._world.is_at_rest:
            self.close()
            self._world = self._make(self._stack)
        return self._world

    def close(self) -> None:
        """End all that belongs to the world."""
        self._stack.close()


@pytest.fixture(scope="module")
def cache_options() -> dict[str, Any]:
    """How a world's cache is started: what it has answered is on its disk."""
    return {"extra_config": {"appendonly": "yes", "appendfsync": "always"}}


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """The settings of a world's workers and readers; `PATIENT_SETTINGS` in modules that count claims and runs."""
    return SETTINGS


@pytest.fixture(scope="module")
def worlds(
    cache_options: dict[str, Any],
    settings: dict[str, str],
    redis_server: RedisServer,
    arcadedb: ArcadeDbServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Worlds]:
    def make(stack: ExitStack) -> World:
        cache = stack.enter_context(RedisServer.start(**cache_options))
        return make_world(stack, cache, redis_server, arcadedb, tmp_path_factory.mktemp("world"), settings)

    with closing(Worlds(make)) as made:
        yield made


@pytest.fixture
def world(worlds: Worlds) -> World:
    """The module's world, for one case."""
    world = worlds.current()
    world.begin()
    return world


@pytest.fixture(autouse=True)
def publishers() -> None:
    """As in production: a publication that a silent broker never answers must not keep later ones waiting."""
