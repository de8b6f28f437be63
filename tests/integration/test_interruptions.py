"""Exceptions from signal handlers, thousands of them, anywhere in a read: nothing hangs, and all goes on.

`make test-long` raises a hundred thousand; INTERRUPTIONS sets another number.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from api_client.config.broker import miss_queue, refresh_queue
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.fake_worker import WorkedKey
from tests.support.interrupted_reads import KEYS, QUERY
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS, PATIENCE

NAMESPACE = "test"
COUNT = int(os.environ.get("INTERRUPTIONS") or (100_000 if IS_LONG else 1_000))
BOUND_SECONDS = (3_600.0 if IS_LONG else 300.0) * PATIENCE


@contextmanager
def emptied(server: RedisServer, queues: list[str]) -> Iterator[None]:
    """Take what is published out of the broker, as workers do."""
    is_over = threading.Event()

    def empty() -> None:
        with redis.Redis.from_url(server.url(1)) as broker:
            while not is_over.wait(0.2):
                broker.delete(*queues)

    thread = threading.Thread(target=empty)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def plant(server: RedisServer) -> None:
    """Plant entries, every second of them stale."""
    with redis.Redis.from_url(server.url(0)) as client:
        for number in range(KEYS):
            key = make_key(NAMESPACE, QUERY, {"n": number}, 1)
            planted = WorkedKey(client, LeaseStore(client), key)
            planted.store_value([number], age_seconds=20.0, ttl_seconds=10.0 if number % 2 else 100_000.0)


@pytest.mark.promise("Reading", "A signal handler that raises anywhere in a read leaves no other call hanging")
@pytest.mark.longer
@pytest.mark.timeout(BOUND_SECONDS + 60)
def test_exceptions_anywhere_in_reads_hang_nothing_and_misses_are_still_published(clean_redis: RedisServer) -> None:
    plant(clean_redis)
    environment = {
        "CACHE_REDIS_URL": clean_redis.url(0), "CACHE_BROKER_URL": clean_redis.url(1), "CACHE_NAMESPACE": NAMESPACE,
        "CACHE_REDIS_TIMEOUT": "5s", "CACHE_QUEUE_TTL": "1s", "CACHE_XFETCH_QUEUE_SIZE": "100000",
    }  # fmt: skip
    queues = [miss_queue(NAMESPACE), refresh_queue(NAMESPACE)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.interrupted_reads", str(COUNT), "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        ends = threading.Timer(BOUND_SECONDS, process.kill)
        ends.start()
        try:
            with emptied(clean_redis, queues):
                report: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
            with redis.Redis.from_url(clean_redis.url(1)) as broker:
                broker.delete(*queues)
                process.stdin.write("go on\n")
                process.stdin.flush()
                ends_of = [json.loads(process.stdout.readline()) for _ in range(2)]
                published = broker.llen(miss_queue(NAMESPACE))
            threads = json.loads(process.stdout.readline())
            assert process.wait(MAX_WAIT_SECONDS) == 0
        finally:
            ends.cancel()
            process.kill()
    sys.stdout.write(json.dumps(report))
    assert report["raised"] >= COUNT
    assert report["came"]["interrupted"] > COUNT / 4
    assert report["came"]["returned"] > 0
    assert report["others_have_ended"]
    assert min(report["reads_of_others"]) > 0
    assert max(report["longest_seconds"], report["others_longest_seconds"]) < MAX_WAIT_SECONDS
    assert report["flushed"] == [True, True]
    assert ends_of == [{"missed": "WaitTimeout", "published": True}] * 2
    assert published == 2
    assert threads == ["MainThread"]


def test_no_call_imports_a_module_in_the_callers_thread(clean_redis: RedisServer) -> None:
    """An exception that interrupts an import can leave its lock held: the next import of the module then hangs."""
    environment = {
        "CACHE_REDIS_URL": clean_redis.url(0), "CACHE_BROKER_URL": clean_redis.url(1), "STAMPEDE_WAIT_TIMEOUT_MS": "10",
    }  # fmt: skip
    imported = subprocess.run(
        [sys.executable, "-m", "tests.support.interrupted_reads", "imports"],
        stdout=subprocess.PIPE, text=True, check=True, timeout=MAX_WAIT_SECONDS, env={**os.environ, **environment},
    ).stdout  # fmt: skip
    assert json.loads(imported) == []
