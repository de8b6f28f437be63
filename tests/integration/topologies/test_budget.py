"""Budgets on a cluster: one script takes from both, so their keys are on one node, whatever the query's name."""

from __future__ import annotations

from api_client.protocol.budget import Budget, Share, Urgency
from api_client.protocol.keys import budget_keys, make_key
from api_client.transport.redis_py import connect
from refresher.ops.budgets import ALL, loads_in_progress
from refresher.worker.redis_link import RetryingLink
from tests.integration.topologies.conftest import NAMESPACE, TIMEOUT_SECONDS
from tests.servers.redis_cluster import Cluster

QUERIES = tuple(f"q{number}" for number in range(9))


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
