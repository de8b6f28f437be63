"""Nodes that leave a cluster: no connection to them stays open."""

from __future__ import annotations

from refresher.embedded import RedisServer
from tests.integration.topologies.conftest import KEYS, MakeReader, NewKey, routes_of
from tests.servers.redis_cluster import SLOTS, Cluster
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


def connections_of(cluster: Cluster, node: RedisServer) -> int:
    with cluster.client(node) as client:
        return len(client.client_list(_type="normal"))


def test_connections_to_a_removed_cluster_node_are_closed(
    make_reader: MakeReader, cluster: Cluster, new_key: NewKey
) -> None:
    for n in KEYS:
        new_key(n).store_value(n)
    left, stays = cluster.nodes[2], cluster.nodes[1]  # the URL names the other two
    before = connections_of(cluster, left)
    reader = make_reader(cluster.url(), redis_timeout_seconds=MAX_WAIT_SECONDS)
    assert [reader.get("q", {"n": n}) for n in KEYS] == list(KEYS)
    assert connections_of(cluster, left) > before
    # As a reply to CLUSTER SLOTS would do.
    assert routes_of(reader).update_slots([[0, SLOTS - 1, [stays.host.encode(), stays.port]]], (stays.host, stays.port))
    eventually(lambda: connections_of(cluster, left) <= before, "its connections are closed")
    # It has its slots all the same, and is found again.
    assert [reader.get("q", {"n": n}) for n in KEYS] == list(KEYS)
    assert connections_of(cluster, left) > before
