"""The recording proxy on a real Redis: what it writes down, in which order, and what it stops."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from api_client.protocol import lease
from api_client.protocol.keys import CacheKey, make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.history import PENDING, key_in
from tests.support.recording_proxy import RecordingProxy, StopPoint


@pytest.fixture
def proxy(clean_redis: RedisServer) -> Iterator[RecordingProxy]:
    with RecordingProxy.before(clean_redis.url()) as made:
        yield made


@pytest.fixture
def client(proxy: RecordingProxy, clean_redis: RedisServer) -> Iterator[redis.Redis]:
    """One that tries nothing again."""
    with redis.Redis.from_url(proxy.url(clean_redis.url()), retry=Retry(NoBackoff(), 0)) as made:
        yield made


def a_key(number: int = 1) -> CacheKey:
    return make_key("test", "query", {"n": number}, 1)


def claim(store: LeaseStore, claim_id: str, number: int = 1) -> lease.ClaimReply:
    call = lease.claim(a_key(number), claim_id=claim_id, seen_token=None, queue_ttl_seconds=60, retention_seconds=60)
    return store.run(call)


def test_a_step_is_written_down_by_its_name_with_key_arguments_and_reply(
    client: redis.Redis, proxy: RecordingProxy
) -> None:
    number = claim(LeaseStore(client), "mine").number
    (step,) = [exchange for exchange in proxy.history.exchanges("claim") if exchange.is_answered]
    assert (step.key, step.args[0]) == (key_in(a_key().entry), b"mine")
    assert step.reply[5] == str(number).encode()
    assert step.sent_at <= step.replied_at
    client.set("some", "thing")
    (other,) = proxy.history.exchanges("SET")
    assert (other.is_answered, other.is_step, other.key) == (True, False, "")


def test_steps_stand_in_the_order_in_which_redis_ran_them(client: redis.Redis, proxy: RecordingProxy) -> None:
    store = LeaseStore(client)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: claim(store, f"claim-{n}", number=0), range(100)))
    stamps = [int(step.reply[5]) for step in proxy.history.exchanges("claim") if step.is_answered]
    assert len(stamps) == 100
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("moment", StopPoint)
def test_a_step_that_is_lost_ends_its_connection_and_only_a_reply_was_done(
    client: redis.Redis, proxy: RecordingProxy, clean_redis: RedisServer, moment: StopPoint
) -> None:
    store = LeaseStore(client)
    claim(store, "first", number=2)
    lost = proxy.loses("claim", moment)
    with pytest.raises(redis.ConnectionError):
        claim(store, "mine")
    assert lost.met is not None
    with redis.Redis.from_url(clean_redis.url()) as past:
        assert past.exists(a_key().record) == (moment is StopPoint.REPLY)
    assert (lost.met.reply is PENDING) == (moment is StopPoint.REQUEST)
    assert claim(store, "mine").status == 1  # once only
