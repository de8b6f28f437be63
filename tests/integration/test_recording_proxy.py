"""The recording proxy on a real Redis: what it writes down, in which order, and what it stops."""

from __future__ import annotations

import threading
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
from tests.support.resp import frame_end, reply_of
from tests.support.waiting import eventually


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


@pytest.mark.parametrize(
    "frame",
    [
        b"+OK\r\n", b":7\r\n", b"-ERR no\r\n", b"$3\r\nabc\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"*0\r\n", b"*-1\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", b"%1\r\n+a\r\n:1\r\n", b">2\r\n+message\r\n$1\r\nx\r\n", b"_\r\n", b"#t\r\n",
        b"=5\r\ntxt:x\r\n", b"|1\r\n+ttl\r\n:1\r\n+OK\r\n",
    ],
)  # fmt: skip
def test_where_a_frame_ends(frame: bytes) -> None:
    assert frame_end(frame) == len(frame)
    assert frame_end(b"+x\r\n" + frame + b"+y\r\n", 4) == 4 + len(frame)
    assert [frame_end(frame[:length]) for length in range(len(frame))] == [None] * len(frame)


def test_an_error_is_a_reply() -> None:
    assert "ERR no" in str(reply_of(b"-ERR no\r\n"))


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
def test_a_step_that_is_held_goes_on_when_it_is_let(
    client: redis.Redis, proxy: RecordingProxy, clean_redis: RedisServer, moment: StopPoint
) -> None:
    store = LeaseStore(client)
    claim(store, "first", number=2)  # whose script Redis knows then
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool, redis.Redis.from_url(clean_redis.url()) as past:
        with proxy.stopping("claim", moment, key=key_in(a_key().entry)) as stop:
            waiting = pool.submit(lambda: (claim(store, "mine"), done.set()))
            stop.wait()
            assert past.exists(a_key().record) == (moment is StopPoint.REPLY)
            claim(store, "another", number=3)  # others pass
            assert not done.is_set()
        waiting.result(10)
    assert done.is_set()


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


def test_what_a_client_that_has_gone_had_sent_is_still_answered_in_the_history(
    client: redis.Redis, proxy: RecordingProxy, clean_redis: RedisServer
) -> None:
    store = LeaseStore(client)
    claim(store, "first", number=2)
    with proxy.stopping("claim", StopPoint.REQUEST, key=key_in(a_key().entry)) as stop, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(claim, store, "mine")
        met = stop.wait()
        (connection,) = client.connection_pool._in_use_connections
        connection._sock.shutdown(2)
    eventually(lambda: met.is_answered, 10, "Redis has run it")
    with pytest.raises(redis.ConnectionError):
        waiting.result(10)


def test_what_is_pushed_to_a_subscriber_answers_nothing(client: redis.Redis, proxy: RecordingProxy) -> None:
    with client.pubsub() as listens:
        listens.subscribe("channel")
        eventually(lambda: listens.get_message(timeout=0.1), 10, "it is subscribed")
        client.publish("channel", "text")
        told = eventually(lambda: listens.get_message(timeout=0.1), 10, "a message")
    assert told["data"] == b"text"
    (published,) = proxy.history.exchanges("PUBLISH")
    assert published.reply == 1


def test_a_link_that_is_half_open_answers_no_more_and_a_new_one_does(
    proxy: RecordingProxy, clean_redis: RedisServer
) -> None:
    url = proxy.url(clean_redis.url())
    with (
        redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=0.5) as old,
        redis.Redis.from_url(url) as new,
    ):
        old.ping()
        proxy.goes_half_open()
        with pytest.raises(redis.TimeoutError):
            old.ping()
        assert new.ping()
