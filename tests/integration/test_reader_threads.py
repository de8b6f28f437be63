"""The reader's threads under hard conditions: none available, a silent Redis, closing, a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from api_client import ReaderEvents, ReaderSettings, RefreshReason, WaitTimeout, threads
from api_client.trigger.backlog import Trigger
from refresher.embedded import RedisServer
from tests.support.any_reader import KINDS, AnyReader, client_of
from tests.support.internals import default_lock, publisher_of
from tests.support.processes import run_forked
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture(params=KINDS)
def make_reader(clean_redis: RedisServer, request: pytest.FixtureRequest) -> Callable[[], AnyReader]:
    settings = ReaderSettings(
        redis_url=clean_redis.url(0), broker_url=clean_redis.url(1), redis_timeout_seconds=MAX_WAIT_SECONDS
    )
    return lambda: KINDS[request.param](settings, ReaderEvents())


@pytest.fixture
def reader(make_reader: Callable[[], AnyReader]) -> Iterator[AnyReader]:
    made = make_reader()
    yield made
    made.close()


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_trigger_is_dropped_while_no_thread_can_start_and_the_next_one_is_accepted(
    reader: AnyReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = Trigger(reader.key("q", {}), RefreshReason.STALE, seen_token=0)
    publisher = publisher_of(client_of(reader))
    with monkeypatch.context() as patched:
        patched.setattr(threads, "start_new_thread", no_thread)
        assert not publisher.submit(trigger)
        with pytest.raises(WaitTimeout):
            reader.get("q", {}, timeout=0.05)
    assert publisher.submit(trigger)
    assert reader.flush(MAX_WAIT_SECONDS)


def test_a_thread_that_was_the_last_of_the_system_is_waited_for_and_all_is_closed(
    clean_redis: RedisServer, make_reader: Callable[[], AnyReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.Redis.from_url(clean_redis.url(3)) as control:
        before = len(control.client_list())
        reader = make_reader()
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            assert publisher_of(client_of(reader)).submit(
                Trigger(reader.key("q", {}), RefreshReason.STALE, seen_token=0)
            )
            assert publisher_of(client_of(reader)).flush(MAX_WAIT_SECONDS)
        reader.close()
        eventually(lambda: len(control.client_list()) <= before, "the server has seen them go")


def test_a_fork_while_the_default_client_is_being_made_leaves_the_child_its_own_lock() -> None:
    with default_lock():

        def take() -> None:
            assert default_lock().acquire(timeout=MAX_WAIT_SECONDS)

        run_forked(take)
