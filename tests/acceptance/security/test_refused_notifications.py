"""A worker whose user may not publish on the cache."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import System
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

QUERY, PARAMS = "long_lived", {"key": "unheard"}

pytestmark = pytest.mark.usefixtures("published_once")


def test_a_worker_that_may_not_publish_logs_it_at_startup_and_refreshes_without_failure(system: System) -> None:
    rules = ("on", ">pw-of-test", "~*", "&*", "+@all", "resetchannels")
    system.cache.execute_command("ACL", "SETUSER", "worker", *rules)
    server = system.redis_server
    worker = system.start_worker(CACHE_REDIS_URL=f"redis://worker:pw-of-test@{server.host}:{server.port}/0")
    client = system.client()
    assert client.get(QUERY, PARAMS)["load"] == 1
    generation = client.invalidate(QUERY, PARAMS).generation
    assert client.get(QUERY, PARAMS, min_generation=generation)["load"] == 2
    worker.terminate(within_seconds=MAX_WAIT_SECONDS)
    log = eventually(lambda: worker.tail_of_log(100_000), "its log")
    assert "the user worker of CACHE_REDIS_URL lacks the permission &cache:n1:*: " in log
    assert log.count(": 'committed (") == 2, log
    assert "can't be used" not in log
    assert system.broker.keys("unacked*") == []
