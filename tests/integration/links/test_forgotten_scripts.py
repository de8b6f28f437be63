"""SCRIPT FLUSH between every two commands: each step is done all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from api_client import CacheUnavailable, ReaderSettings, RefreshState, WaitTimeout
from api_client.protocol.keys import make_key
from api_client.protocol.lease import invalidate
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from refresher.worker.redis_link import RetryingLink
from tests.support.any_reader import KINDS, AnyReader
from tests.support.event_recorder import EventRecorder
from tests.support.fake_worker import WorkedKey
from tests.support.flushing_proxy import FlushingProxy
from tests.support.waiting import MAX_WAIT_SECONDS

NAMESPACE = "test"


@pytest.fixture
def url(clean_redis: RedisServer) -> Iterator[str]:
    """Redis, through a proxy that has it forget all scripts before each command."""
    with FlushingProxy.before_server(clean_redis) as proxy:
        yield proxy.url(clean_redis.url(0))


@pytest.fixture(params=KINDS)
def reader(request: pytest.FixtureRequest, url: str, clean_redis: RedisServer) -> Iterator[AnyReader]:
    settings = ReaderSettings(
        redis_url=url, broker_url=clean_redis.url(1), namespace=NAMESPACE, redis_timeout_seconds=MAX_WAIT_SECONDS
    )
    made = KINDS[request.param](settings, EventRecorder())
    yield made
    made.close()


def state(control: redis.Redis, number: int) -> str:
    return WorkedKey(control, LeaseStore(control), make_key(NAMESPACE, "q", {"n": number}, 1)).state()


def test_a_reader_invalidates_and_claims(reader: AnyReader, control: redis.Redis) -> None:
    first = reader.invalidate("q", {"n": 1})
    assert reader.invalidate("q", {"n": 1}).generation > first.generation
    assert reader.invalidate("q", {"n": 1}, replicas=1).replicated is False
    assert reader.refresh("q", {"n": 2}) is RefreshState.TRIGGERED
    with pytest.raises(WaitTimeout):
        reader.get("q", {"n": 3}, timeout=0.5)
    assert [state(control, number) for number in (2, 3)] == ["queued"] * 2


def test_a_batch_claims_all_that_it_misses(reader: AnyReader, control: redis.Redis) -> None:
    results = reader.get_many([("q", {"n": number}) for number in range(5)], timeout=0.5)
    assert not any(isinstance(result, CacheUnavailable) for result in results)
    assert [state(control, number) for number in range(5)] == ["queued"] * 5


def test_a_worker_runs_steps_alone_and_together(url: str, control: redis.Redis) -> None:
    keys = [make_key(NAMESPACE, "q", {"n": number}, 1) for number in range(3)]
    link = RetryingLink(url)
    generations = link.store.run_all([invalidate(key, hard=False, bookmarks=(), retention_seconds=60) for key in keys])
    assert len(set(generations)) == len(keys)
    again = link.store.run(invalidate(keys[0], hard=True, bookmarks=(), retention_seconds=60))
    assert again > generations[0]
    link.close()
