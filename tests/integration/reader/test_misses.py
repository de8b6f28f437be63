"""A read that finds nothing: it claims, waits with others, and is woken by the commit, or by its own polls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import redis

from api_client import EntryState, RefreshState, WaitTimeout
from api_client.config.broker import miss_queue
from tests.integration.reader.conftest import NAMESPACE, NEVER_SECONDS, MakeReader, NewKey
from tests.support.any_reader import AnyReader, callers_waiting, client_of
from tests.support.event_recorder import EventRecorder
from tests.support.internals import notifications_of, record_claims
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

WAITERS = 20


@pytest.mark.usefixtures("one_claim_per_wait")
def test_a_miss_makes_one_claim_and_waits_for_the_value(
    reader: AnyReader, new_key: NewKey, events: EventRecorder, pool: ThreadPoolExecutor, control: redis.Redis
) -> None:
    key = new_key()
    read = pool.submit(reader.get_entry, "q", {})
    token = key.load({"n": 1})
    entry = read.result(MAX_WAIT_SECONDS)
    assert (entry.value, entry.state, entry.refresh) == ({"n": 1}, EntryState.MISS, RefreshState.TRIGGERED)
    assert entry.token == token
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events.recorded == [("miss",), ("triggered", "miss")]
    assert key.record() == {}
    with redis.Redis.from_url(client_of(reader).settings.broker_url) as broker:
        assert broker.llen(miss_queue(NAMESPACE)) == 1


@pytest.mark.usefixtures("one_claim_per_wait")
def test_a_commit_wakes_a_waiting_reader_by_its_notification(
    make_reader: MakeReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    # Nothing else can wake it: neither a poll nor a second claim comes within the test's time.
    reader, key = make_reader(wait_poll_ms=NEVER_SECONDS * 1e3, wait_timeout_ms=5 * MAX_WAIT_SECONDS * 1e3), new_key()
    read = pool.submit(reader.get, "q", {})
    token = key.begin()
    eventually(key.has_subscriber, "it listens")
    key.end(token, "v")
    assert read.result(MAX_WAIT_SECONDS) == "v"


@pytest.mark.usefixtures("one_claim_per_wait")
def test_a_waiter_polls_without_notifications(reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor) -> None:
    key = new_key()
    notifications_of(client_of(reader)).close()
    read = pool.submit(reader.get, "q", {})
    token = key.begin()
    assert not key.has_subscriber()
    key.end(token, "v")
    assert read.result(MAX_WAIT_SECONDS) == "v"


@pytest.mark.promise("Reading", "Callers of one missing key share one wait and one load")
def test_callers_of_one_key_share_one_wait(
    reader: AnyReader, new_key: NewKey, events: EventRecorder, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    reads = [pool.submit(reader.get_entry, "q", {}) for _ in range(WAITERS)]
    token = key.begin()
    eventually(lambda: callers_waiting(reader) == [WAITERS], "they share a wait")
    key.end(token, [1])
    entries = [read.result(MAX_WAIT_SECONDS) for read in reads]
    assert {(entry.token, entry.state) for entry in entries} == {(token, EntryState.MISS)}
    for entry in entries:  # no caller sees what another one did to its value
        assert entry.value == [1]
        entry.value.append(2)
    assert reader.flush(MAX_WAIT_SECONDS)
    assert len(events["miss"]) == WAITERS
    assert len(events["followed"]) == WAITERS - 1
    assert events["triggered"] == [["miss"]]


def test_a_timeout_of_zero_triggers_and_does_not_wait(
    reader: AnyReader, new_key: NewKey, events: EventRecorder
) -> None:
    key = new_key()
    with pytest.raises(WaitTimeout, match="'q'") as caught:
        reader.get("q", {}, timeout=0)
    assert (caught.value.query, caught.value.waited_seconds, caught.value.state) == ("q", 0.0, "queued")
    assert key.state() == "queued"
    assert reader.flush(MAX_WAIT_SECONDS)
    # The publisher's thread records the last one at some later time.
    assert sorted(events.recorded) == [("miss",), ("read failed", "timeout"), ("triggered", "miss")]


def test_the_timeout_of_the_settings_is_the_default(
    make_reader: MakeReader, new_key: NewKey, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = record_claims(monkeypatch)
    read = pool.submit(make_reader(wait_timeout_ms=NEVER_SECONDS * 1e3).get, "q", {})
    (wait,) = eventually(lambda: list(claimed), "it has claimed")
    assert NEVER_SECONDS - MAX_WAIT_SECONDS < wait.options.timeout_seconds <= NEVER_SECONDS
    new_key().load("v")
    assert read.result(MAX_WAIT_SECONDS) == "v"


def test_a_follower_whose_time_runs_out_leaves_the_others_waiting(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    leader = pool.submit(reader.get, "q", {})
    eventually(lambda: callers_waiting(reader) == [1], "one waits")
    with pytest.raises(WaitTimeout, match="waiting with others") as caught:
        reader.get("q", {}, timeout="50ms")
    assert caught.value.waited_seconds == pytest.approx(0.05)
    key.load("v")
    assert leader.result(MAX_WAIT_SECONDS) == "v"


def test_a_leader_whose_time_runs_out_leaves_the_others_waiting(
    reader: AnyReader, new_key: NewKey, events: EventRecorder, pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    key, claimed = new_key(), record_claims(monkeypatch)
    leader = pool.submit(reader.get, "q", {})
    (wait,) = eventually(lambda: list(claimed), "one waits")
    follower = pool.submit(reader.get, "q", {})
    eventually(lambda: callers_waiting(reader) == [2], "both wait")
    wait.options = replace(wait.options, timeout_seconds=0.0)
    assert isinstance(leader.exception(MAX_WAIT_SECONDS), WaitTimeout)
    key.load("v")
    assert follower.result(MAX_WAIT_SECONDS) == "v"
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events["triggered"] == [["miss"]]


@pytest.mark.promise("Protocol", "I4: a lost message is published again")
def test_a_lost_message_is_published_again_while_a_caller_waits(
    reader: AnyReader, new_key: NewKey, events: EventRecorder, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    key.claim("of a reader that died before it published")
    key.client.hset(key.key.record, "published", key.now_us() - 2_000_000)
    read = pool.submit(reader.get, "q", {})
    eventually(lambda: events["republished"], "it is published once more")
    key.load("v")
    assert read.result(MAX_WAIT_SECONDS) == "v"
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events["triggered"] == []


def test_a_value_of_ttl_zero_is_returned_to_its_waiters_only(
    reader: AnyReader, new_key: NewKey, events: EventRecorder, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    first = pool.submit(reader.get_entry, "q", {})
    token = key.hand_over("once")
    entry = first.result(MAX_WAIT_SECONDS)
    assert (entry.value, entry.state, entry.token) == ("once", EntryState.MISS, token)
    later = pool.submit(reader.get_entry, "q", {})  # the entry still is there, and not for this one
    assert key.hand_over("twice") > token
    assert later.result(MAX_WAIT_SECONDS).value == "twice"
    assert events["hit"] == []


def test_a_caller_that_comes_while_a_value_of_ttl_zero_is_loaded_gets_a_later_one(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    first = pool.submit(reader.get, "q", {})
    token = key.begin()
    second = pool.submit(reader.get, "q", {})
    eventually(lambda: callers_waiting(reader) == [2], "both wait")
    assert key.end(token, "once", ttl_seconds=0.0, soft_expiry_us=token, flags=1).accepted
    assert first.result(MAX_WAIT_SECONDS) == "once"
    key.hand_over("twice")
    assert second.result(MAX_WAIT_SECONDS) == "twice"
