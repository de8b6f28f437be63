"""Lease records in each state with the notifications sent on the way, on a clock that stands still; and an envelope."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import redis
from msgspec.structs import replace

from api_client.config.broker import miss_queue
from api_client.protocol import lease, payload
from api_client.protocol.entry import encode
from api_client.transport.scripts import LeaseStore
from api_client.trigger.broker import CeleryBroker
from refresher.embedded import RedisServer
from tests.support.lease_world import ClockedWorld
from tests.support.movable_clock import ClockedRedis
from tests.support.waiting import MAX_WAIT_SECONDS
from tests.support.wire_formats import HEADER, ITEMS, KEY, NAMESPACE, NOW_US, VALUE

NONCE: Final = b"nonce--1"
SECOND: Final = 1.0
# Headers that Celery generates for each message, or takes from the machine.
DRAWN: Final = frozenset({"id", "root_id", "origin", "expires"})
STANDS_FOR: Final = {"expires": "2031-10-18T00:00:00+00:00"}


def _claim(world: ClockedWorld) -> int:
    call = lease.claim(
        KEY, claim_id="claim-1", seen_token=None, queue_ttl_seconds=60, retention_seconds=600, bookmarks=("FB:1",),
        by="reader:1",
    )  # fmt: skip
    return world.store.run(call).number


def _acquire(world: ClockedWorld) -> int:
    number = _claim(world)
    world.pass_time(SECOND)
    call = lease.acquire(
        KEY, nonce=NONCE, claim_number=number, ticket="", lease_seconds=5, limit_seconds=30, retention_seconds=600,
        by="refresh@host:2",
    )  # fmt: skip
    token = world.store.run(call).token
    world.pass_time(SECOND)
    return token


def _invalidate(world: ClockedWorld, *, hard: bool = False) -> None:
    world.store.run(lease.invalidate(KEY, hard=hard, bookmarks=("FB:2",), retention_seconds=600))


def _run_is_invalidated(world: ClockedWorld) -> None:
    _acquire(world)
    _invalidate(world)


def _retry(world: ClockedWorld) -> None:
    world.store.run(
        lease.retry(
            KEY, token=_acquire(world), nonce=NONCE, ticket="ticket-1", pause_seconds=7, kind="timeout", attempts=1,
            retention_seconds=600,
        )
    )  # fmt: skip


def _fail(world: ClockedWorld) -> None:
    world.store.run(
        lease.fail(
            KEY, token=_acquire(world), nonce=NONCE, cooling_seconds=30, kind="syntax", attempts=2,
            retention_seconds=600, longest_seconds=3600,
        )
    )  # fmt: skip


def _hand_back(world: ClockedWorld) -> None:
    token = _acquire(world)
    world.store.run(lease.hand_back(KEY, token=token, nonce=NONCE, queue_ttl_seconds=60, retention_seconds=600))


def _commit(world: ClockedWorld) -> None:
    token = _acquire(world)
    header = replace(HEADER, token=token, nonce=NONCE)
    world.store.run(
        lease.commit(
            KEY, token=token, nonce=NONCE, entry=encode(header, KEY.digest, payload.encode(VALUE)),
            hard_ttl_seconds=600, retention_seconds=600,
        )
    )  # fmt: skip


STATES: Final[Mapping[str, Callable[[ClockedWorld], object]]] = {
    "queued": _claim,
    "running": _acquire,
    "running, invalidated": _run_is_invalidated,
    "retrying": _retry,
    "cooling": _fail,
    "handed back": _hand_back,
    "invalidated": _invalidate,
    "invalidated hard": lambda world: _invalidate(world, hard=True),
    "committed": _commit,
}


@contextmanager
def golden_world(clocked: ClockedRedis) -> Iterator[ClockedWorld]:
    """Return the key of the golden files, without entry and record, at their time."""
    with redis.Redis.from_url(clocked.server.url()) as client:
        world = ClockedWorld(client, LeaseStore(client), KEY, clock=clocked.clock)
        world.at(NOW_US)
        client.delete(KEY.entry, KEY.record)
        yield world
        client.delete(KEY.entry, KEY.record)


def records(clocked: ClockedRedis) -> dict[str, Any]:
    """Return the record in each state, the rest of an entry beside it, and the notifications on the way there."""
    return {name: _record(clocked, reach) for name, reach in STATES.items()}


def _record(clocked: ClockedRedis, reach: Callable[[ClockedWorld], object]) -> dict[str, Any]:
    with golden_world(clocked) as world, world.client.pubsub() as listener:
        world.plant(NOW_US - 60_000_000, read_started_us=NOW_US - 61_000_000)
        listener.subscribe(KEY.channel)
        reach(world)
        there = world.look()
        world.client.publish(KEY.channel, "that was all")
        return {
            "fields": {name: value.decode() for name, value in sorted(there.record.items())},
            "now_us": clocked.clock.now_us,
            "record_ms": there.record_ms,
            "entry": there.raw_entry.hex() if isinstance(there.raw_entry, bytes) else None,
            "notifications": list(_received(listener)),
        }


def _received(listener: Any) -> Iterator[str]:
    while (received := listener.get_message(ignore_subscribe_messages=True, timeout=MAX_WAIT_SECONDS)) is None or (
        received["data"] != b"that was all"
    ):
        if received is not None:
            yield received["data"].decode()


def carried(server: RedisServer) -> dict[str, Any]:
    """Return a message as a reader's Celery stores it in Redis; generated values are replaced."""
    url = server.url(1)
    broker = CeleryBroker(url, NAMESPACE)
    with redis.Redis.from_url(url) as client:
        client.delete(miss_queue(NAMESPACE))
        broker.publish(ITEMS["miss"], has_waiter=True)
        (raw,) = client.lrange(miss_queue(NAMESPACE), 0, -1)
        client.delete(miss_queue(NAMESPACE))
    broker.close()
    envelope = json.loads(raw)
    headers = {
        name: STANDS_FOR.get(name, name) if name in DRAWN else value for name, value in envelope["headers"].items()
    }
    kept = {name: envelope[name] for name in ("content-type", "content-encoding")}
    return {**kept, "headers": headers, "body": b64decode(envelope["body"]).decode()}
