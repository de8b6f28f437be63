"""Steps of lease records on the sync reader's connections: single ones, batches of the publisher, those of waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pytest
import redis

from api_client import CacheUnavailable
from api_client.protocol import lease
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.lease import Call, ClaimReply, ClaimStatus
from api_client.transport.link import CacheLink
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import MAX_WAIT_SECONDS

Claims: TypeAlias = Sequence[Call[ClaimReply]]

SHORT_SECONDS = 0.3
ALL_WAYS: dict[str, Callable[[CacheLink, Claims], Sequence[Any]]] = {
    "alone": lambda link, calls: [link.run(call, "q") for call in calls],
    "and-wait": lambda link, calls: [
        link.run_and_wait(call, "q", replicas=0, timeout_seconds=SHORT_SECONDS)[0] for call in calls
    ],
    "together": lambda link, calls: link.run_each(calls, "q"),
}


def key(number: int) -> CacheKey:
    return make_key("test", "q", {"n": number}, 1)


def claims(*numbers: int) -> Claims:
    times = {"queue_ttl_seconds": 60.0, "retention_seconds": 60.0}
    return [lease.claim(key(n), claim_id=f"claim {n}", seen_token=None, **times) for n in numbers]


def claimed(replies: Sequence[Any]) -> list[bool]:
    return [isinstance(reply, ClaimReply) and reply.status is ClaimStatus.CLAIMED for reply in replies]


@pytest.fixture
def link(url: str, control: redis.Redis) -> Iterator[CacheLink]:
    made = CacheLink(url, MAX_WAIT_SECONDS, MAX_WAIT_SECONDS)
    yield made
    made.close()


@pytest.fixture(params=sorted(ALL_WAYS))
def run(request: pytest.FixtureRequest) -> Callable[[CacheLink, Claims], Sequence[Any]]:
    return ALL_WAYS[request.param]


def test_reads_and_steps_share_one_connection(link: CacheLink, proxy: FaultProxy) -> None:
    assert link.read(key(0)) is None
    for number, way in enumerate(ALL_WAYS.values()):
        assert claimed(way(link, claims(2 * number, 2 * number + 1))) == [True, True]
    assert proxy.accepted == 1


def test_a_script_that_redis_has_forgotten_is_loaded_again(
    link: CacheLink, control: redis.Redis, run: Callable[[CacheLink, Claims], Sequence[Any]]
) -> None:
    assert claimed(run(link, claims(1, 2))) == [True, True]
    control.script_flush()
    assert claimed(run(link, claims(2, 3))) == [True, True]


def test_a_connection_that_was_closed_meanwhile_is_replaced(
    link: CacheLink, proxy: FaultProxy, run: Callable[[CacheLink, Claims], Sequence[Any]]
) -> None:
    run(link, claims(1))
    proxy.cuts()
    assert claimed(run(link, claims(1, 2))) == [True, True]
    assert proxy.accepted == 2


def test_a_step_that_redis_refuses_fails_alone(link: CacheLink, control: redis.Redis) -> None:
    control.set(key(2).record, "no record")
    assert claimed(link.run_each(claims(1, 2, 3), "q")) == [True, False, True]
    with pytest.raises(CacheUnavailable, match="WRONGTYPE"):
        link.run(claims(2)[0], "q")
    with pytest.raises(CacheUnavailable, match="WRONGTYPE"):
        link.run_and_wait(claims(2)[0], "q", replicas=0, timeout_seconds=SHORT_SECONDS)


def test_connections_to_a_demoted_master_are_dropped(
    link: CacheLink, control: redis.Redis, proxy: FaultProxy, run: Callable[[CacheLink, Claims], Sequence[Any]]
) -> None:
    run(link, claims(1))
    control.replicaof("127.0.0.1", "1")
    try:
        (reply,) = run(link, claims(2))
    except CacheUnavailable as error:
        reply = error
    finally:
        control.replicaof("NO", "ONE")
    assert "read only replica" in str(reply)
    assert claimed(run(link, claims(2))) == [True]
    assert proxy.accepted > 1
