"""Batches as Redis sees them: their round trips, and the other items where Redis refuses one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from api_client import CacheUnavailable, Entry, ReaderSettings, WaitTimeout
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import KINDS, AnyReader
from tests.support.event_recorder import EventRecorder
from tests.support.fake_worker import WorkedKey
from tests.support.fault_proxy import FaultProxy
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS

NAMESPACE = "test"
COUNT = 64


@pytest.fixture(params=KINDS)
def reader(request: pytest.FixtureRequest, url: str, clean_redis: RedisServer) -> Iterator[AnyReader]:
    settings = ReaderSettings(
        redis_url=url, broker_url=clean_redis.url(1), namespace=NAMESPACE, redis_timeout_seconds=MAX_WAIT_SECONDS
    )
    made = KINDS[request.param](settings, EventRecorder())
    yield made
    made.close()


def worked_key(
    control: redis.Redis, query: str = "q", params: dict[str, Any] | None = None, version: int = 1
) -> WorkedKey:
    return WorkedKey(control, LeaseStore(control), make_key(NAMESPACE, query, params, version))


def test_hits_of_many_keys_are_one_round_trip(reader: AnyReader, control: redis.Redis, proxy: FaultProxy) -> None:
    calls = [("q", {"n": number}) for number in range(COUNT)]
    for query, params in calls:
        worked_key(control, query, params).store_value(params["n"])
    reader.get_many(calls[:1])  # the connection is made, and the time is known
    control.config_resetstat()
    before = proxy.requests
    assert [entry.value for entry in reader.get_many(iter(calls)) if isinstance(entry, Entry)] == list(range(COUNT))
    assert proxy.requests - before == 1
    assert control.info("commandstats")["cmdstat_get"]["calls"] == COUNT


@pytest.mark.alone
def test_misses_of_a_batch_share_one_timeout_and_are_claimed_once_each(reader: AnyReader, control: redis.Redis) -> None:
    calls = [("q", {"n": number}) for number in range(COUNT)]
    reader.get_many([("other", None)], timeout=0)
    control.config_resetstat()
    with Measured() as took:
        results = reader.get_many(calls, timeout=0.5)
    took.at_most(0.5)
    assert [type(result) for result in results] == [WaitTimeout] * COUNT
    assert [result.query for result in results if isinstance(result, WaitTimeout)] == ["q"] * COUNT
    states = [worked_key(control, query, params).state() for query, params in calls]
    assert states == ["queued"] * COUNT


def test_an_error_reply_for_one_key_does_not_affect_the_others(reader: AnyReader, control: redis.Redis) -> None:
    control.set(make_key(NAMESPACE, "refused", None, 1).record, "no hash")
    worked_key(control, "there").store_value("value")
    worked_key(control, "cold").store_value("old", age_seconds=60)
    calls = [("there", None), ("late", None), ("refused", None), ("cold", None)]
    there, late, refused, cold = reader.get_many(calls, timeout=0.3)
    assert isinstance(there, Entry)
    assert isinstance(refused, CacheUnavailable)
    assert refused.query == "refused"
    assert isinstance(late, WaitTimeout)
    assert isinstance(cold, Entry)


def test_a_batch_closes_an_open_breaker(reader: AnyReader, control: redis.Redis, proxy: FaultProxy) -> None:
    worked_key(control, "a").store_value("a")
    worked_key(control, "b").store_value("b")
    calls = [("a", None), ("b", None)]
    proxy.refuses()
    for _ in range(6):
        reader.get_many(calls)
    proxy.passes()

    def answers() -> list[object]:
        return [getattr(result, "value", result) for result in reader.get_many(calls)]

    seen = [answers()]
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while seen[-1] != ["a", "b"] and time.monotonic() < deadline:
        seen.append(answers())
    refusals = {str(one) for answer in seen[:-1] for one in answer}
    assert seen[-1] == ["a", "b"]
    assert all("not tried again yet" in one for one in refusals), "the first that was let through was answered"
