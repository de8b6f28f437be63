"""hiredis is given bytes only: it converts an int itself, and crashes if a signal handler raises meanwhile (3.5.0)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import hiredis
import pytest
import redis

from api_client import CacheClient, ReaderSettings
from api_client.protocol.keys import make_key
from api_client.protocol.lease import invalidate
from api_client.transport.redis_py import connect, connect_to_any
from api_client.transport.wire import BytesPacker, pack
from refresher.embedded import RedisServer
from refresher.flow.dead_letters import DeadLetters
from refresher.worker.redis_link import RetryingLink
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

BROKERS_OWN = frozenset({"kombu", "celery"})  # on the publisher's thread, where no signal handler runs


@pytest.fixture
def packed(clean_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """Record the commands that hiredis is given to pack, except by the broker's client."""
    commands: list[tuple[Any, ...]] = []
    really: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]

    def pack_command(words: tuple[Any, ...]) -> bytes:
        frame: Any = inspect.currentframe()
        callers = set()
        while frame is not None:
            callers.add(frame.f_globals.get("__name__", "").partition(".")[0])
            frame = frame.f_back
        if not callers & BROKERS_OWN:
            commands.append(words)
        return really(words)

    monkeypatch.setattr(hiredis, "pack_command", pack_command)
    yield commands
    assert commands, "hiredis packs nothing any more: see api_client.wire"
    assert [words for words in commands if {type(word) for word in words} != {bytes}] == []


@pytest.mark.usefixtures("replica_waits")
def test_a_reader_gives_hiredis_bytes_only(packed: list[tuple[Any, ...]], clean_redis: RedisServer) -> None:
    settings = ReaderSettings(
        redis_url=clean_redis.url(3), broker_url=clean_redis.url(1), redis_timeout_seconds=MAX_WAIT_SECONDS,
        local_max_entries=10,
    )  # fmt: skip
    with CacheClient(settings) as client:
        client.invalidate("q", {"n": 1}, replicas=1)
        client.get("q", {"n": 1}, timeout=0.2, default=None)
        client.get_many([("q", {"n": 2}), ("q", {"n": 3})], timeout=0.2)
        client.explain("q", {"n": 1})
        expected = {b"EVALSHA", b"EVAL", b"HELLO", b"CLIENT", b"SELECT", b"WAIT"}  # HELLO by the tier's own thread
        eventually(lambda: expected <= {words[0] for words in packed}, "all are packed")


def test_a_worker_gives_hiredis_bytes_only(packed: list[tuple[Any, ...]], clean_redis: RedisServer) -> None:
    key = make_key("cache", "q", {"n": 1}, 1)
    link = RetryingLink(clean_redis.url(3))
    link.store.run(invalidate(key, hard=False, bookmarks=(), retention_seconds=60))
    link.store.run_all([invalidate(key, hard=False, bookmarks=(), retention_seconds=60)] * 2)
    assert DeadLetters(link.client, "cache").newest() == []
    link.close()
    assert {b"EVALSHA", b"SELECT"} <= {words[0] for words in packed}


def test_clients_of_redis_py_give_hiredis_bytes_only(packed: list[tuple[Any, ...]], clean_redis: RedisServer) -> None:
    for client in (
        connect(clean_redis.url(3), timeout_seconds=MAX_WAIT_SECONDS),
        connect_to_any(clean_redis.url(3), timeout_seconds=MAX_WAIT_SECONDS),
    ):
        with client, client.pipeline() as pipeline:
            client.set("key", 1, px=60_000)
            pipeline.expire("key", 60)
            pipeline.zadd("letters", {"one": 1.5, b"two": 2})
            pipeline.execute()
            assert client.get("key") == b"1"
            assert client.zscore("letters", memoryview(b"one").tobytes()) == 1.5
            assert client.config_get("maxmemory-policy")


def test_the_bytes_packer_encodes_as_redis_py_does() -> None:
    words = ("CONFIG GET", "ä", b"\xff\x00", 1, -5, 1.5, 1e300, bytearray(b"x"), memoryview(b"y"))
    (packed,) = BytesPacker().pack(*words)
    assert packed == b"".join(redis.Connection().pack_command(*words))
    assert pack("A", 1, b"x") == b"*3\r\n$1\r\nA\r\n$1\r\n1\r\n$1\r\nx\r\n"


@pytest.mark.parametrize("word", [None, True, object(), ["x"]])
def test_the_bytes_packer_refuses_words_of_other_types(word: object) -> None:
    with pytest.raises(redis.DataError, match=f"type {type(word).__name__}: expected text, bytes or a number"):
        BytesPacker().pack("SET", "key", word)
