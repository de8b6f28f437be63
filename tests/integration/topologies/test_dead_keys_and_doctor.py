"""Dead letters and doctor where the cache is a cluster: keys of several nodes."""

from __future__ import annotations

import pytest
import redis

from api_client import ReaderSettings
from api_client.protocol import lease
from api_client.protocol.keys import make_key
from api_client.transport.redis_py import connect
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from refresher.flow.dead_letters import DeadLetter, DeadLetters
from refresher.ops.dead_keys import DeadKeys, KeyStatus
from refresher.ops.doctor.registry import findings
from refresher.settings import WorkerSettings
from tests.integration.topologies.conftest import TIMEOUT_SECONDS
from tests.servers.redis_cluster import Cluster
from tests.support.waiting import MAX_WAIT_SECONDS

KEYS = 12


def dead_letter(client: redis.Redis, number: int) -> None:
    """Fail and dead-letter a refresh, as a worker does."""
    key, store = make_key("test", "q", {"n": number}, 1), LeaseStore(client)
    token = store.run(
        lease.acquire(
            key, nonce=b"nonce--1", claim_number=1, ticket="", lease_seconds=60, limit_seconds=60,
            retention_seconds=60,
        )
    ).token  # fmt: skip
    store.run(
        lease.fail(
            key, token=token, nonce=b"nonce--1", cooling_seconds=60, kind="syntax", attempts=1, retention_seconds=60,
            longest_seconds=600,
        )
    )  # fmt: skip
    DeadLetters(client, "test").add(
        DeadLetter(
            query="q", version=1, params={"n": number}, digest=key.digest.hex(), token=token, kind="syntax",
            message="", attempts=1, at_us=token, failures=1,
        )
    )  # fmt: skip


@pytest.fixture
def settings(shared_cluster: Cluster, clean_redis: RedisServer) -> WorkerSettings:
    shared_cluster.empty()
    return WorkerSettings(redis_url=shared_cluster.url(), broker_url=clean_redis.url(1), namespace="test")


def test_dead_keys_of_all_nodes_are_listed_with_their_status_and_dropped(settings: WorkerSettings) -> None:
    with connect(settings.redis_url, timeout_seconds=MAX_WAIT_SECONDS) as client:
        for number in range(KEYS):
            dead_letter(client, number)
        keys = DeadKeys(client, settings)
        found = keys.all()
        assert [one.letter.params for one in found] == [{"n": number} for number in reversed(range(KEYS))]
        assert {one.status for one in found} == {KeyStatus.COOLING}
        assert [keys.drop(one) for one in found] == [True] * KEYS
        assert keys.all() == []
        assert not any(client.exists(one.key.record) for one in found)


@pytest.mark.usefixtures("patient_commands")
def test_doctor_finds_a_cluster_ok(settings: WorkerSettings) -> None:
    reader = ReaderSettings(
        redis_url=settings.redis_url, broker_url=settings.broker_url, namespace="test",
        redis_timeout_seconds=TIMEOUT_SECONDS,
    )  # fmt: skip
    levels = {one.check: one.level.value for one in findings(settings, reader)}
    assert [levels[check] for check in ("cache", "clock", "notifications", "lease steps", "dead letters")] == ["ok"] * 5
