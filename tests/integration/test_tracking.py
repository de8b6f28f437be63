"""The in-process tier is notified of every change, on the oldest Redis and on the system's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from api_client import CacheClient, EntryState, ReaderSettings, threads
from api_client.local import tracking as invalidations
from api_client.local.entry import LocalEntry
from api_client.local.tracking import InvalidationStream
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import local_cache_of
from tests.support.fake_worker import WorkedKey
from tests.support.internals import age, thread_of
from tests.support.redis_memory import limited
from tests.support.tracked import HEADER, Tracked, entry_key, losses
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

KEY, OTHER = entry_key("aa"), entry_key("bb")
STORM = 100_000
REFUSALS = {
    "no permission to track": (">sesame +@all -client +client|setname +client|id", "to CLIENT TRACKING"),
    "no permission to subscribe": (">sesame +@all -subscribe", "to SUBSCRIBE"),
    "another password": (">other +@all", "it refuses this user or password"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server for this file: it evicts and is flushed."""
    with RedisServer.start() as started:
        yield started


@pytest.fixture
def tracked(server: RedisServer) -> Iterator[Tracked]:
    made = Tracked(server.url())
    # Before the link tracks: a flush that it received would end the first fill of a test, in place of the test.
    made.control.flushall()
    with made:
        yield made.up()


def dropped(tracked: Tracked, key: str = KEY) -> None:
    eventually(lambda: key not in tracked.tier.entries, f"{key} is dropped")


CHANGES: dict[str, Any] = {
    "set": lambda control: control.set(KEY, "new"),
    "changed in place": lambda control: control.setrange(KEY, 1, "x"),
    "deleted": lambda control: control.delete(KEY),
    "unlinked": lambda control: control.unlink(KEY),
    "renamed away": lambda control: control.rename(KEY, "elsewhere"),
    "set by a script": lambda control: control.eval("redis.call('SET', KEYS[1], 'new')", 1, KEY),
    "expired": lambda control: control.pexpire(KEY, 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_a_key_drops_its_entry_and_no_other(tracked: Tracked, change: str) -> None:
    tracked.keep(KEY, OTHER)
    CHANGES[change](tracked.control)
    dropped(tracked)
    assert OTHER in tracked.tier.entries


def test_an_evicted_key_is_dropped(tracked: Tracked) -> None:
    tracked.keep(KEY)
    with limited(tracked.control, 1, "allkeys-lru"):
        dropped(tracked)


@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB"])
def test_a_flush_drops_all_entries_and_pending_fills(tracked: Tracked, command: str) -> None:
    tracked.keep(KEY, OTHER)
    fill = tracked.begin(KEY)
    tracked.control.execute_command(command)
    dropped(tracked)
    dropped(tracked, OTHER)
    tracked.wait_until_received()
    assert not tracked.tier.fill(fill, LocalEntry(b"old", HEADER, 0))
    tracked.keep(KEY)  # and it goes on


def test_changes_of_other_keys_are_not_received(tracked: Tracked, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked.keep(KEY)
    received: list[str] = []
    drop_all = tracked.tier.drop_all
    monkeypatch.setattr(tracked.tier, "drop_all", lambda keys: (received.extend(keys), drop_all(keys)))
    for key in ("cache:l1:{q:1:aa}", "cache:n1:{q:1:aa}", entry_key("aa", "cache2"), entry_key("aa", "xcache"), "aa"):
        tracked.control.set(key, "new")
    tracked.control.set(b"cache:e1:\xff\xfe", "not UTF-8")
    tracked.wait_until_received()
    assert KEY in tracked.tier.entries
    assert received == ["cache:e1:\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}", entry_key("marker")]


def test_a_change_of_the_same_key_in_another_database_drops_the_entry(tracked: Tracked, server: RedisServer) -> None:
    tracked.keep(KEY)
    with redis.Redis.from_url(server.url(5)) as other_database:
        other_database.set(KEY, "of another database")
        dropped(tracked)
        tracked.keep(KEY)
        other_database.flushdb()
        dropped(tracked)


def test_a_reader_of_another_database_receives_its_own_invalidations(server: RedisServer) -> None:
    with Tracked(server.url(5)) as tracked:
        tracked.up().keep(KEY)
        tracked.control.set(KEY, "new")
        dropped(tracked)


def test_a_reply_overtaken_by_its_invalidation_is_not_kept(tracked: Tracked) -> None:
    tracked.control.set(KEY, "old")
    tracked.wait_until_received()
    fill = tracked.begin(KEY)
    old = tracked.control.get(KEY)
    assert isinstance(old, bytes)
    tracked.control.set(KEY, "new")
    tracked.wait_until_received()
    assert not tracked.tier.fill(fill, LocalEntry(old, HEADER, 0))
    assert KEY not in tracked.tier.entries


def test_the_tier_is_off_until_redis_has_confirmed_tracking(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, gate = threading.Event(), threading.Event()
    original = InvalidationStream.track

    def held(stream: InvalidationStream, prefix: str, channel: str) -> None:
        reached.set()
        assert gate.wait(MAX_WAIT_SECONDS)
        original(stream, prefix, channel)

    monkeypatch.setattr(InvalidationStream, "track", held)
    with Tracked(server.url()) as tracked:
        assert reached.wait(MAX_WAIT_SECONDS)
        assert tracked.tier.begin(KEY) is None
        gate.set()
        tracked.up()


@pytest.mark.parametrize("how", ["one message each", "one message for many"])
def test_a_storm_of_invalidations_is_processed_completely(tracked: Tracked, how: str) -> None:
    kept = [entry_key(f"kept{number}") for number in range(1_000)]
    tracked.keep(*kept, KEY)
    ids = tracked.tracking_ids()
    names = [entry_key(f"kept{number}") for number in range(STORM)]
    if how == "one message for many":
        tracked.control.mset(dict.fromkeys(names, "new"))
    else:
        with tracked.control.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.set(name, "new")
            pipeline.execute()
    tracked.wait_until_received()
    assert list(tracked.tier.entries) == [KEY]
    assert tracked.tracking_ids() == ids  # the link was never lost


def test_closing_ends_thread_and_connection_for_good(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invalidations, "PROBE_SECONDS", 60.0)  # it has to be woken: its own probe comes too late
    with Tracked(server.url()) as tracked:
        tracked.up().keep(KEY)
        listener = thread_of(tracked.link)
        tracked.link.close()
        assert tracked.tier.entries == {}
        assert tracked.tier.begin(KEY) is None
        listener.join(MAX_WAIT_SECONDS)
        assert not listener.is_alive()
        eventually(lambda: not tracked.tracking_ids(), "the connection is closed")
        monkeypatch.setattr(threads, "start_new_thread", lambda *_: pytest.fail("a thread was started"))
        tracked.link.start()


def test_the_memory_of_entries_past_their_age_is_freed_without_a_read(tracked: Tracked) -> None:
    tracked.keep(KEY, OTHER)
    age(tracked.tier, 10_000)
    eventually(lambda: tracked.tier.held_bytes == 0, "nothing is held")


def test_starting_twice_opens_one_tracking_connection(tracked: Tracked) -> None:
    tracked.link.start()
    assert len(tracked.tracking_ids()) == 1


@pytest.fixture
def settings(clean_redis: RedisServer) -> ReaderSettings:
    return ReaderSettings(
        redis_url=clean_redis.url(0), broker_url=clean_redis.url(1), redis_timeout_seconds=MAX_WAIT_SECONDS,
        local_max_entries=100, local_max_age_seconds=600.0,
    )  # fmt: skip


@pytest.fixture
def client(settings: ReaderSettings) -> Iterator[CacheClient]:
    with CacheClient(settings) as made:
        yield made


@pytest.fixture
def key(clean_redis: RedisServer) -> Iterator[WorkedKey]:
    """A key that has the value "old"."""
    with redis.Redis.from_url(clean_redis.url(0)) as control:
        worked_key = WorkedKey(control, LeaseStore(control), make_key("cache", "q", None, 1))
        worked_key.store_value("old", age_seconds=100)
        yield worked_key


def keeps(client: CacheClient, key: WorkedKey) -> None:
    """Read until the tier, which the first read turns on, has the entry."""
    eventually(lambda: (client.get("q"), key.key.entry in local_cache_of(client).entries)[1], "it is kept")


def test_the_first_read_turns_the_tier_on_and_does_not_wait_for_it(client: CacheClient, key: WorkedKey) -> None:
    assert local_cache_of(client).is_bypassed
    assert client.get("q") == "old"
    keeps(client, key)


@pytest.mark.parametrize("hard", [False, True])
def test_one_client_s_invalidation_reaches_another_s_tier(
    settings: ReaderSettings, client: CacheClient, key: WorkedKey, hard: bool
) -> None:
    keeps(client, key)
    with CacheClient(settings) as other:
        other.invalidate("q", hard=hard)
        assert key.key.entry not in local_cache_of(other).entries
        eventually(lambda: key.key.entry not in local_cache_of(client).entries, "it is dropped")
        if not hard:
            assert client.get_entry("q").state is EntryState.STALE


@pytest.mark.usefixtures("patient_publishers")
@pytest.mark.promise("Reading", "The in-process cache is emptied by a commit anywhere")
def test_a_commit_reaches_every_tier(settings: ReaderSettings, client: CacheClient, key: WorkedKey) -> None:
    with CacheClient(settings) as other:
        keeps(client, key)
        keeps(other, key)
        client.refresh("q")
        key.load("new")
        for one in (client, other):
            eventually(lambda one=one: one.get("q") == "new", "the new value is read")


def test_after_a_read_that_waited_the_tier_returns_no_older_value(
    client: CacheClient, key: WorkedKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps(client, key)
    tier, drop_all = local_cache_of(client), local_cache_of(client).drop_all
    listens = "cache-invalidations"  # that thread's turn has not come yet
    monkeypatch.setattr(tier, "drop_all", lambda keys: threading.current_thread().name == listens or drop_all(keys))
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.get, "q", fresh=True)
        key.load("new")
        assert waits.result(MAX_WAIT_SECONDS) == "new"
    assert client.get("q") == "new"


def refused(tracked: Tracked, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Several attempts have failed, the log has one line that says why, and no secret."""
    eventually(lambda: tracked.pauses >= 3, "three attempts")
    assert tracked.tier.is_bypassed
    (line,) = losses(caplog)
    assert why in line
    assert "sesame" not in caplog.text


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_is_logged_once_and_retried(
    own_redis: RedisServer, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    rights, why = REFUSALS[what]
    made = Tracked(f"redis://reader:sesame@{own_redis.host}:{own_redis.port}/0", own_redis.url())
    made.control.execute_command("ACL", "SETUSER", "reader", "on", "~*", "&*", *rights.split())
    with made as tracked:
        refused(tracked, caplog, why)
        made.control.execute_command("ACL", "SETUSER", "reader", ">sesame", "+@all")
        tracked.works(KEY)


class WithoutResp3(RedisServer):
    """Checks its server in RESP2, since HELLO is disabled."""

    def _client(self, timeout_seconds: float) -> redis.Redis:
        return redis.Redis.from_url(self.url(), protocol=2, socket_timeout=timeout_seconds)


def test_a_server_without_resp3_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    with WithoutResp3.start(extra_config={"rename-command": 'HELLO ""'}) as old, Tracked(old.url()) as tracked:
        refused(tracked, caplog, "to HELLO")


def test_a_server_that_is_busy_with_a_script_counts_as_lost_not_as_refusing(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    made = Tracked(own_redis.url())
    made.control.config_set("lua-time-limit", 1)
    endless = threading.Thread(target=run_endless_script, args=(own_redis,))
    endless.start()
    eventually(lambda: is_busy(made), "the server is busy")
    with made as tracked:
        eventually(lambda: losses(caplog), "a failed attempt")
        assert "lost" in losses(caplog)[0]
        assert "BUSY" in losses(caplog)[0]
        tracked.control.script_kill()
        endless.join(MAX_WAIT_SECONDS)
        tracked.works(KEY)


def run_endless_script(server: RedisServer) -> None:
    with (
        redis.Redis.from_url(server.url(), socket_timeout=MAX_WAIT_SECONDS) as client,
        pytest.raises(redis.ResponseError),
    ):
        client.eval("while true do end", 0)


def is_busy(tracked: Tracked) -> bool:
    try:
        tracked.control.get(KEY)
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False
