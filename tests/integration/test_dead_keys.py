"""A retry of a dead key after Redis' clock was set back: its new tokens are below that of the dead letter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import redis

from api_client import CacheClient, ReaderSettings
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from refresher.flow.dead_letters import DeadLetter, DeadLetters
from refresher.ops.dead_keys import DeadKeys, RetryOutcome
from tests.support.fake_worker import WorkedKey
from tests.support.waiting import MAX_WAIT_SECONDS

NAMESPACE = "test"
HOUR_US = 3_600_000_000


@pytest.mark.usefixtures("patient_publishers")
@pytest.mark.parametrize("has_old_value", [False, True])
def test_a_retried_dead_key_is_refreshed_though_its_token_is_below_the_letter_s(
    clean_redis: RedisServer, control: redis.Redis, has_old_value: bool
) -> None:
    settings = ReaderSettings(
        redis_url=clean_redis.url(0), broker_url=clean_redis.url(1), namespace=NAMESPACE,
        redis_timeout_seconds=MAX_WAIT_SECONDS,
    )  # fmt: skip
    key = WorkedKey(control, LeaseStore(control), make_key(NAMESPACE, "q", {}, 1))
    if has_old_value:
        key.store_value("old", age_seconds=60.0)
    ahead, letters = key.now_us() + HOUR_US, DeadLetters(control, NAMESPACE)
    letters.add(
        DeadLetter(
            query="q", version=1, params={}, digest=key.key.digest.hex(), token=ahead, kind="syntax", message="",
            attempts=1, at_us=ahead,
        )
    )  # fmt: skip
    with ExitStack() as stack:
        client, pool = stack.enter_context(CacheClient(settings)), stack.enter_context(ThreadPoolExecutor(1))
        dead = DeadKeys(control, settings)
        retrying = pool.submit(dead.retry, dead.all(), client, wait_seconds=MAX_WAIT_SECONDS)
        assert key.load("new") < ahead
        (result,) = retrying.result(MAX_WAIT_SECONDS)
    assert result.what is RetryOutcome.REFRESHED
    assert letters.newest() == []
