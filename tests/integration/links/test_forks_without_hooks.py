"""A fork that bypasses Python's hooks, as a C server's: the child uses no connection, thread or lock of its parent's.

With all that a reader has, between server processes: `tests/acceptance/test_forks.py`.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from contextlib import suppress

import redis

from api_client import CacheClient
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import local_cache_of
from tests.support.fake_worker import WorkedKey
from tests.support.internals import lock_of
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

WITHOUT_HOOKS = f"import os; os.register_at_fork = lambda **_: None; import {__name__} as test; test.fork_and_read()"


def fork_and_read() -> None:
    """Read, fork while the in-process cache's lock is held, and read in both processes; each says that it could."""
    faulthandler.dump_traceback_later(MAX_WAIT_SECONDS, exit=True)
    client = CacheClient.from_env()
    reads(client, "parent")
    with lock_of(local_cache_of(client)):
        child = os.fork()
        if not child:
            with suppress(BaseException):
                reads(client, "child")
            os._exit(0)
    reads(client, "parent")
    os.waitpid(child, 0)
    os._exit(0)


def reads(client: CacheClient, name: str) -> None:
    """Keep a value in the in-process cache, and receive the invalidation of its change."""
    cache, key = local_cache_of(client), client.key(name).entry
    with redis.Redis.from_url(client.settings.redis_url) as control:
        for load in ("first", "second"):
            value = f"{name}'s {load}"
            WorkedKey(control, LeaseStore(control), client.key(name)).store_value(value)
            eventually(lambda value=value: client.get(name) == value and key in cache.entries, value)  # type: ignore[misc]
    os.write(1, f"{name} reads\n".encode())


def test_parent_and_child_both_read_and_see_invalidations_after_a_fork_without_hooks(clean_redis: RedisServer) -> None:
    with redis.Redis.from_url(clean_redis.url(0)) as control:
        for name in ("parent", "child"):
            WorkedKey(control, LeaseStore(control), make_key("cache", name, None, 1)).store_value("before")
    env = {
        "CACHE_REDIS_URL": clean_redis.url(0), "CACHE_BROKER_URL": clean_redis.url(1), "CACHE_REDIS_TIMEOUT": "5s",
        "CACHE_LOCAL_MAX_ENTRIES": "10",
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_HOOKS],
        env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said = process.communicate(timeout=MAX_WAIT_SECONDS)[0]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
    assert sorted(said.splitlines()) == ["child reads", "parent reads", "parent reads"]
