"""Checks of the cache's Redis: permissions, server, replicas, eviction, clock, notifications, lease steps."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from redis.exceptions import RedisError

from api_client.config.redis_url import Topology, read_url
from api_client.explain import duration
from api_client.protocol import lease
from api_client.protocol.lease import ClaimStatus
from api_client.transport.redis_py import open_pubsub
from api_client.transport.scripts import LeaseStore
from api_client.transport.wire import reason
from refresher.ops.doctor.deployment import FULL_SHARE, TIMEOUT_SECONDS, Deployment, server_title, used_share
from refresher.ops.doctor.findings import AS_OPERATOR, Finding, ok, problem, warning
from refresher.ops.permissions import Permissions, user_of

MIN_REDIS_VERSION: Final = (6, 2)
MAX_CLOCK_SKEW_SECONDS: Final = 1.0
_SET_LRU: Final = "CONFIG SET maxmemory-policy allkeys-lru, or volatile-lru with tags"


def permissions(deployment: Deployment) -> Finding:
    """Report the permissions that the user of CACHE_REDIS_URL lacks."""
    user = user_of(deployment.worker.redis_url)
    granted = Permissions(deployment.cache, deployment.worker.namespace)
    if missing := " ".join(granted.missing_for_readers()):
        return problem(
            f"the user {user} lacks permissions that readers and workers need: {missing}", _grant(user, missing)
        )
    if deployment.as_reader:
        return _permissions_for_speed(deployment, granted, user)
    if missing := " ".join(granted.missing_for_operators()):
        needs = "doctor, `refresher status` and `refresher dead`"
        if granted.missing_to_notify():
            needs += ", and notifying waiting readers (else they poll for what this user commits or invalidates),"
        message = f"the user {user} lacks permissions that {needs} need: {missing}"
        return warning(message, f"{AS_OPERATOR}, or grant it these")
    return ok(f"the user {user} has what readers, doctor, `refresher status` and `refresher dead` need")


def _permissions_for_speed(deployment: Deployment, granted: Permissions, user: str) -> Finding:
    tracks = deployment.reader.local_max_entries > 0
    missing = " ".join(granted.missing_for_speed(tracks=tracks, timeout_seconds=TIMEOUT_SECONDS))
    if not missing:
        return ok(f"the user {user} has what readers need")
    return warning(
        f"the user {user} lacks permissions that notifications, batches or the in-process cache need: {missing}",
        f"{_grant(user, missing)}; readers work without, but slower",
    )


def _grant(user: str, missing: str) -> str:
    return f"ACL SETUSER {user} {missing}, or the ACL file of deploy/redis; if need be on every node"


def server(deployment: Deployment) -> Finding:
    """Check the version and the role of the cache's Redis."""
    info = deployment.info
    deployment.cache_run_id = str(info.get("run_id", ""))
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_REDIS_VERSION:
        return problem(f"{server_title(info)} is too old", "use Redis 6.2 or later, or Valkey")
    if info.get("role") == "slave":
        return problem(
            "the server is a replica: nothing can be written", "let CACHE_REDIS_URL name the master, or its Sentinels"
        )
    return ok(f"reachable: {server_title(info)}")


def replicas(deployment: Deployment) -> Iterator[Finding]:
    """Check that another server can take over, and that a master that is cut off then stops."""
    topology = read_url(deployment.worker.redis_url).topology
    if topology is not Topology.SINGLE:
        yield replication(topology, deployment.info)


def replication(topology: Topology, info: Mapping[str, Any]) -> Finding:
    """Check a master behind Sentinels or in a cluster, by its INFO."""
    count = int(info.get("connected_slaves", 0))
    if not count:
        return warning(
            "none is connected: no server can take over from this master, and `replicas=1` is never met", "connect one"
        )
    if topology is Topology.CLUSTER:
        return ok(f"connected: {count}; a master that is cut off stops after cluster-node-timeout")
    if "min_slaves_good_slaves" in info:  # only with min-replicas-to-write
        return ok(f"connected: {count}; a master that is cut off stops after min-replicas-max-lag")
    return warning(
        "min-replicas-to-write is 0: a master that is cut off goes on, and what it acknowledges is lost",
        "with at least two replicas, set min-replicas-to-write 1 and min-replicas-max-lag 2 on every server; a master "
        "without a replica then takes no write, so nothing is refreshed",
    )


def eviction(deployment: Deployment) -> Finding:
    """Check maxmemory and its policy."""
    info = deployment.info
    policy, bound, used = str(info.get("maxmemory_policy", "")), int(info.get("maxmemory", 0)), used_share(info)
    if policy == "volatile-ttl":
        return problem(
            "volatile-ttl drops the lease records first: once the memory is full no value is ever stored", _SET_LRU
        )
    if not bound:
        return warning(
            "the cache has no maxmemory", "set maxmemory, and maxmemory-policy allkeys-lru, or volatile-lru with tags"
        )
    if policy == "noeviction":
        report = problem if used >= FULL_SHARE else warning
        return report(f"noeviction, {used:.0%} of maxmemory used: once it is full every refresh fails", _SET_LRU)
    return ok(f"{policy}, {bound:,} bytes, {used:.0%} used")


def clock(deployment: Deployment) -> Finding:
    """Compare this machine's clock with Redis' clock, which was read between request and reply."""
    sent_at = time.time()
    whole_seconds, microseconds = deployment.node.time()
    received_at = time.time()
    read_at = whole_seconds + microseconds / 1e6
    # The duration of the exchange is no skew.
    least_seconds = max(sent_at - read_at, read_at - received_at)
    if least_seconds > MAX_CLOCK_SKEW_SECONDS:
        return warning(
            f"this machine's clock and Redis' are at least {duration(least_seconds)} apart",
            "run a time service on both: decisions go by Redis' clock, logs and the graph by their own",
        )
    return ok(f"within {duration(max(received_at - read_at, read_at - sent_at))} of Redis'")


def notifications(deployment: Deployment) -> Finding:
    """Subscribe to a channel of the kind that waiting readers use, and publish to it."""
    channel, sent = deployment.key.channel, uuid.uuid4().hex.encode()
    with open_pubsub(deployment.node) as listener:
        listener.subscribe(channel)
        listener.get_message(timeout=TIMEOUT_SECONDS)  # the confirmation of the subscription
        deployment.node.publish(channel, sent)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (left_seconds := deadline - time.monotonic()) > 0:
            message = listener.get_message(timeout=left_seconds)
            if message is not None and message["data"] == sent:
                return ok("arrive")
    return problem(
        "a message published on the cache does not arrive",
        "waiting readers find their value by polling, up to a second late: look at what lies between",
    )


def lease_steps(deployment: Deployment) -> Finding:
    """Claim doctor's own key, and take the claim back, as a reader would."""
    key, claim_id, store = deployment.key, uuid.uuid4().hex, LeaseStore(deployment.cache)
    try:
        reply = store.run(
            lease.claim(key, claim_id=claim_id, seen_token=None, queue_ttl_seconds=1, retention_seconds=1)
        )
        if reply.status is ClaimStatus.CLAIMED:
            store.run(lease.unclaim(key, claim_id=claim_id, retention_seconds=1))
    except RedisError as error:
        return problem(f"a claim fails: {reason(error)}", "no refresh can begin until this is fixed")
    return ok("work")
