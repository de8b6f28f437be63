"""`status` and `inspect` on a cluster: keys of all its nodes."""

from __future__ import annotations

from api_client.protocol.keys import CacheKey, make_key
from api_client.transport.redis_py import connect
from api_client.transport.scripts import LeaseStore
from refresher.ops.inspect import find_by_digest, inspect_key
from refresher.ops.scan import scan_keys
from tests.servers.redis_cluster import Cluster
from tests.support.lease_world import World
from tests.support.waiting import MAX_WAIT_SECONDS

KEYS = 24


def key(number: int) -> CacheKey:
    return make_key("test", "friends_of", {"n": number}, 1)


def test_status_and_inspect_find_the_keys_of_all_nodes(shared_cluster: Cluster) -> None:
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
            assert inspect_key(client, "test", found).record["state"] == "queued"
