"""Forks that bypass Python's hooks, as a C server's: no process uses a socket, a thread or a lock of its parent's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import redis

from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.fake_worker import WorkedKey
from tests.support.forking_reader import KINDS

WITHIN_SECONDS = 60.0


@pytest.mark.parametrize("kind", KINDS)
def test_parent_and_child_each_have_their_own_of_all(kind: str, clean_redis: RedisServer) -> None:
    with redis.Redis.from_url(clean_redis.url(0)) as control:
        for name in ("parent", "child"):
            WorkedKey(control, LeaseStore(control), make_key("cache", name, None, 1)).store_value(name)
    env = {"CACHE_REDIS_URL": clean_redis.url(0), "CACHE_BROKER_URL": clean_redis.url(1), "CACHE_REDIS_TIMEOUT": "5s"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.forking_reader", kind],
        env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            told = process.communicate(timeout=WITHIN_SECONDS)[0]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
    assert sorted(told.splitlines()) == ["child good", "parent good"]
