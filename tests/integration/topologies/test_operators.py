"""Operators' commands and budgets where the cache is a cluster: keys of several nodes."""

from __future__ import annotations

import pytest
import redis

from api_client import ReaderSettings
from api_client.protocol import lease
from api_client.protocol.budget import Budget, Share, Urgency
from api_client.protocol.keys import CacheKey, budget_keys, make_key
from api_client.transport.redis_py import connect
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from refresher.flow.dead_letters import DeadLetter, DeadLetters
from refresher.ops.budgets import ALL, loads_in_progress
from refresher.ops.dead_keys import DeadKeys, KeyStatus
from refresher.ops.doctor.registry import findings
from refresher.ops.lookup import explain_keys, find_by_digest
from refresher.ops.scan import scan_keys
from refresher.settings import WorkerSettings
from refresher.worker.redis_link import RetryingLink
from tests.integration.topologies.conftest import NAMESPACE, TIMEOUT_SECONDS
from tests.servers.redis_cluster import Cluster
from tests.servers.redis_sentinels import Sentinels
from tests.support.doctor import run_check
from tests.support.lease_world import World
from tests.support.waiting import MAX_WAIT_SECONDS

QUERIES = tuple(f"q{number}" for number in range(9))
KEYS = 12


@pytest.mark.usefixtures("no_share_ends")
def test_budget_shares_of_several_queries_are_taken_renewed_and_released(cluster: Cluster) -> None:
    link = RetryingLink(cluster.url())
    assert len({cluster.node_of(make_key(NAMESPACE, query, None, 1).entry) for query in QUERIES}) > 1
    assert len({cluster.node_of(name) for query in (None, *QUERIES) for name in budget_keys(NAMESPACE, query)}) == 1
    shares = [Share(NAMESPACE, query, query, Budget(concurrency=8), Budget(concurrency=1)) for query in QUERIES]
    try:
        waits = link.store.run_each([share.take(Urgency.STALE) for share in shares])
        assert [wait == 0 for wait in waits] == [True] * 8 + [False]
        client = connect(cluster.url(), timeout_seconds=TIMEOUT_SECONDS)
        assert loads_in_progress(client, NAMESPACE, [ALL, "q0", "q8"]) == {ALL: 8, "q0": 1, "q8": 0}
        assert all(link.store.run_all([share.renew() for share in shares[:8]]))
        assert link.store.run_all([share.release(refund=False) for share in shares]) == [True] * 8 + [False]
        assert loads_in_progress(client, NAMESPACE, [ALL, "q0"]) == {ALL: 0, "q0": 0}
    finally:
        link.close()


def key(number: int) -> CacheKey:
    return make_key("test", "friends_of", {"n": number}, 1)


def test_status_and_explain_find_the_keys_of_all_nodes(shared_cluster: Cluster) -> None:
    shared_cluster.empty()
    with connect(shared_cluster.url(), timeout_seconds=MAX_WAIT_SECONDS) as client:
        for number in range(KEYS):
            world = World(client, LeaseStore(client), key(number))
            world.plant(world.now_us())
            world.claim()
        seen = scan_keys(client, "test")
        row = seen.queries["friends_of"]
        assert (row.keys, row.headers, row.queued, row.lead) == (KEYS, KEYS, KEYS, 0.5)
        assert (seen.is_sample, seen.problem, seen.keys_of_server) == (False, "", 2 * KEYS)
        for number in range(KEYS):
            found = find_by_digest(client, "test", "friends_of", 1, key(number).short)
            assert found
            assert found.entry == key(number).entry
            (explained,) = explain_keys(client, [found])
            assert explained.record
            assert explained.record.state == "queued"


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


@pytest.mark.usefixtures("patient_commands")
def test_doctor_warns_of_a_master_that_would_go_on_alone(sentinels: Sentinels, settings: WorkerSettings) -> None:
    def found(url: str) -> tuple[str, bool]:
        finding = run_check("replicas", redis_url=url)
        return finding.level.value, "min-replicas-to-write" in finding.message

    assert found(settings.redis_url) == ("warning", False)  # this cluster has no replicas
    assert found(sentinels.url()) == ("warning", True)
    for node in sentinels.nodes:
        sentinels.execute(node, "CONFIG", "SET", "min-replicas-to-write", "1")
    assert found(sentinels.url()) == ("ok", False)
