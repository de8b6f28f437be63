"""The main job on real processes: stale at once, one refresh, fresh afterwards."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api_client import CacheClient, EntryState, ReaderEvents, RefreshFailed, RefreshReason, RefreshState, UnknownQuery
from api_client.config.broker import miss_queue
from tests.acceptance.conftest import System
from tests.support.any_reader import KINDS, AnyReader, callers_waiting, client_of
from tests.support.graph_session import session_with_hub
from tests.support.internals import link_of
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = [pytest.mark.smoke, pytest.mark.usefixtures("published_once")]


class Counted(ReaderEvents):
    """Counts the events of a reader."""

    def __init__(self) -> None:
        self.triggered: list[RefreshReason] = []
        self.deduplicated: list[str] = []
        self.dropped: list[str] = []
        self.failed: list[str] = []
        self.followers = 0
        self._lock = threading.Lock()

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        self.triggered.append(reason)

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        self.deduplicated.append(state)

    def refresh_dropped(self, query: str, *, why: str) -> None:
        self.dropped.append(why)

    def trigger_failed(self, query: str, *, why: str) -> None:
        self.failed.append(why)

    def single_flight_hit(self, query: str, *, waited_seconds: float) -> None:
        with self._lock:
            self.followers += 1


def unused() -> str:
    """Return a key that no other test of the same worker uses: a message of theirs may come again, and late."""
    return uuid.uuid4().hex


def stale_entry(client: CacheClient | AnyReader, params: dict[str, Any]) -> int:
    """Prime a short-lived entry and return its token once it has grown stale."""
    token = client.get_entry("short_lived", params).token
    key = client.key("short_lived", params)
    link = link_of(client_of(client))

    def is_stale() -> bool:
        raw = link.read(key)
        return raw is not None and int.from_bytes(raw[36:44], "big") <= link.now_us()

    eventually(is_stale, "the entry is stale")
    return token


@pytest.mark.parametrize("kind", KINDS)
def test_a_stale_value_is_served_at_once_and_refreshed_after(system_with_worker: System, kind: str) -> None:
    system, client = system_with_worker, system_with_worker.reader(kind)
    params = {"key": (key := unused()), "hold": key}
    system.open_gate(key)
    token = stale_entry(client, params)

    stale = client.get_entry("short_lived", params)  # its refresh is held at the gate, so nothing could be waited for
    assert (stale.value["load"], stale.state, stale.refresh) == (1, EntryState.STALE, RefreshState.TRIGGERED)
    eventually(lambda: system.loads(key) == 2, "the refresh has begun")
    assert client.get_entry("short_lived", params).token == token

    assert system.loads(key) == 2
    system.open_gate(key)
    fresh = eventually(
        lambda: (entry := client.get_entry("short_lived", params)).token > token and entry, "a new value"
    )
    assert fresh.value["load"] == 2
    system.open_gate(key)  # for the next refresh, which that read may have triggered


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_misses_share_one_wait_and_one_load(system_with_worker: System, kind: str) -> None:
    system, events = system_with_worker, Counted()
    client, key = system.reader(kind, events), unused()
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(client.get, "long_lived", {"key": key, "hold": key}) for _ in range(20)]
        eventually(lambda: callers_waiting(client) == [20], "all of them wait")
        eventually(lambda: system.loads(key) == 1, "the load has begun")
        system.open_gate(key)
        assert [done.result(MAX_WAIT_SECONDS)["load"] for done in waiting] == [1] * 20
    assert system.loads(key) == 1
    assert events.followers == 19


@pytest.mark.promise("Refreshing", "Transient failures are retried while the stale value is served, over RabbitMQ too")
def test_a_load_that_fails_twice_is_retried_while_the_stale_value_is_served(system: System) -> None:
    worker = system.start_worker()
    client = system.client()
    token = stale_entry(client, {"key": "a"})
    system.control.rpush("script:a", "fail", "fail", "ok")

    def refreshed() -> bool:
        entry = client.get_entry("short_lived", {"key": "a"})
        assert entry.value["load"] in {1, 4}  # never an error, never half of something
        return bool(entry.token > token)

    eventually(refreshed, "the third attempt's value")
    assert system.loads("a") >= 4  # the short-lived value may be stale again by now
    assert worker.log_file.read_text().count("failed (transient: TransientFailure at ") == 2


@pytest.mark.promise("Refreshing", "Permanent failures are reported to waiters and not retried")
@pytest.mark.parametrize(
    ("query", "params", "kind", "reader_kind"),
    [
        ("nobody_knows", {}, "unknown_query", "sync"),  # whose error is of a class of its own, in either reader
        ("nobody_knows", {}, "unknown_query", "async"),
        ("long_lived", {}, "wrong_params", "sync"),
        ("long_lived", {"key": "a", "what": 1}, "wrong_params", "async"),
        ("unencodable", {}, "not_encodable", "sync"),
        ("syntax_error", {}, "syntax", "async"),
    ],
)
def test_a_permanent_failure_is_reported_to_waiters_and_not_retried(
    system_with_worker: System, query: str, params: dict[str, Any], kind: str, reader_kind: str
) -> None:
    system, client = system_with_worker, system_with_worker.reader(reader_kind)
    with pytest.raises(RefreshFailed) as caught:
        client.get(query, params)
    assert (caught.value.kind, caught.value.attempts, caught.value.query) == (kind, 1, query)
    assert isinstance(caught.value, UnknownQuery) == (kind == "unknown_query")
    # It is written after the waiters have been notified.
    letter = eventually(lambda: system.cache.zrange("cache:dead1", 0, -1), "the dead letter is there")
    assert len(letter) == 1
    assert f'"kind":"{kind}"'.encode() in letter[0]


def test_the_degree_and_the_lead_time_are_recorded(system_with_worker: System, arcadedb: Any) -> None:
    with session_with_hub(arcadedb), Measured() as took:
        entry = system_with_worker.client().get_entry("from_graph", {"name": "hub"})
    assert entry.value == [{"name": "hub", "version": 1}]
    assert entry.degree == 10
    assert entry.beta == 1.0  # the degree counts with TSPR_REFRESH_MODE=topology_sensitive alone
    assert 0 < entry.delta <= took.seconds
    # At rest an entry is one key; those of the queries' live versions do not grow with the entries.
    kinds = [key.split(b":")[1] for key in system_with_worker.cache.scan_iter()]
    assert [kind for kind in kinds if kind != b"v1"] == [b"e1"]


@pytest.mark.parametrize("query", ["revised", "revised_together"])
def test_a_value_that_is_unchanged_is_fresh_again_without_being_loaded(
    system_with_worker: System, arcadedb: Any, query: str
) -> None:
    client, params = system_with_worker.client(), {"name": "hub"}
    with session_with_hub(arcadedb) as session:
        first = client.get_entry(query, params)
        client.invalidate(query, params)
        client.get(query, params)
        eventually(lambda: client.get_entry(query, params).token > first.token, "it is refreshed")
        after = client.get_entry(query, params)
        assert (after.state, after.value) == (EntryState.FRESH, first.value)

        session.run("MATCH (a:Item {name: 'hub'}) SET a.version = 2").consume()
        invalidated = client.invalidate(query, params)
        changed = client.get_entry(query, params, min_generation=invalidated.generation)
    assert changed.value != first.value
    if query == "revised":
        assert system_with_worker.loads("hub") == 2, "the first, and the one after the change"


def test_misses_go_before_early_refreshes(system: System) -> None:
    system.start_worker("-c", "1")
    client = system.client()
    client.refresh("long_lived", {"key": "first", "hold": "gate"})
    eventually(lambda: system.loads("first") == 1, "the only process is busy")
    for number in range(5):
        client.refresh("long_lived", {"key": f"refresh-{number}"})
    with ThreadPoolExecutor(1) as pool:
        miss = pool.submit(client.get, "long_lived", {"key": "miss"})
        eventually(lambda: system.waiting(miss_queue) == 1, "the miss is queued")
        system.open_gate("gate")
        assert miss.result(MAX_WAIT_SECONDS)["load"] == 1
    order = eventually(
        lambda: len(found := system.control.lrange("order", 0, -1)) == 7 and found, "all have been loaded"
    )
    assert order[:2] == ["first", "miss"]


def test_a_manual_refresh_can_be_waited_for_and_bypasses_the_backoff(system: System) -> None:
    system.start_worker(CACHE_XFETCH_RETRY_ENABLED="false", CACHE_COOLING="10m")
    for kind in KINDS:
        client = system.reader(kind)
        system.control.rpush(f"script:{kind}", "fail")
        with pytest.raises(RefreshFailed, match="transient"):
            client.get("long_lived", {"key": kind})
        with pytest.raises(RefreshFailed, match="transient"):
            client.get("long_lived", {"key": kind})  # it backs off
        assert system.loads(kind) == 1
        for number in (2, 3, 4):
            assert client.refresh("long_lived", {"key": kind}, wait=True) is RefreshState.TRIGGERED
            assert client.get("long_lived", {"key": kind})["load"] == number
        assert system.loads(kind) == 4  # one load per refresh: the wait returned that one's value
