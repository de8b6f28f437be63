"""A stopped reader with an in-process tier: Redis buffers a bounded amount for it, and the tier recovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import redis

from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.fake_worker import WorkedKey
from tests.support.waiting import eventually

LIMIT_BYTES = 1_000_000
WRITES = 3_000
LONG_KEY = "cache:e1:{" + "x" * 10_000 + "%d}"
"""Its invalidations are 10 KB each: 30 MB in all, more than sockets hold."""

READER = """
import sys
from api_client import CacheClient
from tests.support.internals import tier_of
client = CacheClient.from_env()
for line in sys.stdin:
    print(client.get("q"), tier_of(client).is_bypassed, flush=True)
"""


def tracking_clients(control: redis.Redis) -> list[dict[str, Any]]:
    return [client for client in control.client_list() if "t" in client["flags"]]


def test_redis_buffers_a_bounded_amount_for_a_stopped_reader(own_redis: RedisServer) -> None:
    env = {"CACHE_REDIS_URL": own_redis.url(0), "CACHE_BROKER_URL": own_redis.url(1), "CACHE_REDIS_TIMEOUT": "10s"}
    with (
        redis.Redis.from_url(own_redis.url(0)) as control,
        subprocess.Popen(
            [sys.executable, "-c", READER],
            env={**os.environ, **env, "CACHE_LOCAL_MAX_ENTRIES": "100"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as reader,
    ):  # fmt: skip
        assert reader.stdin is not None
        assert reader.stdout is not None

        def read() -> str:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write("\n")
            reader.stdin.flush()
            return reader.stdout.readline()

        try:
            control.config_set("client-output-buffer-limit", f"pubsub {LIMIT_BYTES} {LIMIT_BYTES} 60")
            key = WorkedKey(control, LeaseStore(control), make_key("cache", "q", None, 1))
            key.store_value("old")
            eventually(lambda: read() == "old False\n", "the tier is on")
            reader.send_signal(signal.SIGSTOP)
            most = 0
            for number in range(0, WRITES, 50):
                with control.pipeline(transaction=False) as pipeline:
                    for each in range(number, number + 50):
                        pipeline.set(LONG_KEY % each, 1, px=60_000)
                    pipeline.execute()
                most = max([most, *(int(client["omem"]) for client in tracking_clients(control))])
            assert most < 3 * LIMIT_BYTES
            assert not tracking_clients(control), "Redis has closed the link"
            key.store_value("new")
            reader.send_signal(signal.SIGCONT)
            eventually(lambda: read() == "new False\n", "the tier is on again")
        finally:
            reader.kill()
