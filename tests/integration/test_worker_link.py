"""A worker's link to the cache: it waits out faults of Redis, and drops a connection to a demoted master."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import TryAgainError

from api_client.errors import CacheUnavailable
from api_client.protocol import lease
from api_client.protocol.keys import make_key
from api_client.protocol.lease import AcquireStatus, Call
from api_client.transport.pool import Connections
from api_client.transport.scripts import at_once
from refresher.embedded import RedisServer
from refresher.worker import redis_link
from refresher.worker.redis_link import PATIENCE_SECONDS, RetryingLink
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import MAX_WAIT_SECONDS

# How far the last pause may exceed the limit.
MAX_PAUSE_SECONDS = 1.0


def acquire(number: int = 1) -> Call[lease.AcquireReply]:
    key = make_key("test", "worker_link", {"n": number}, 1)
    return lease.acquire(
        key,
        nonce=b"nonce--1",
        claim_number=1,
        ticket="",
        lease_seconds=60.0,
        limit_seconds=60.0,
        retention_seconds=60.0,
    )


class Pauses:
    """Replaces the pauses between two attempts: records them, and advances the link's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        self.after: dict[int, object] = {}
        monkeypatch.setattr(redis_link, "sleep", self._pause)
        monkeypatch.setattr(redis_link, "monotonic_seconds", lambda: sum(self.seconds))

    def _pause(self, pause_seconds: float) -> None:
        self.seconds.append(pause_seconds)
        act = self.after.get(len(self.seconds))
        if callable(act):
            act()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    return Pauses(monkeypatch)


@pytest.fixture
def proxy(clean_redis: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy.before(clean_redis.url()) as before:
        yield before


@pytest.fixture(params=[MAX_WAIT_SECONDS])
def link(
    clean_redis: RedisServer, proxy: FaultProxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RetryingLink]:
    """A link whose timeout is so long that a busy machine does not exceed it, or the test's own."""
    monkeypatch.setattr(redis_link, "TIMEOUT_SECONDS", request.param)
    made = RetryingLink(proxy.url(clean_redis.url()))
    yield made
    made.close()


def test_all_steps_of_a_worker_share_one_connection(link: RetryingLink, proxy: FaultProxy) -> None:
    for number in range(20):
        link.store.run(acquire(number))
    link.store.run_all([acquire(1), acquire(2)])
    assert proxy.accepted == 1


def test_a_step_on_a_cut_connection_is_repeated_without_a_pause(
    link: RetryingLink, proxy: FaultProxy, pauses: Pauses
) -> None:
    link.store.run(acquire())
    proxy.cuts()
    assert link.store.run(acquire()).status is AcquireStatus.ACQUIRED
    assert pauses.seconds == []


def test_a_step_waits_for_a_redis_that_comes_back(link: RetryingLink, proxy: FaultProxy, pauses: Pauses) -> None:
    link.store.run(acquire())
    proxy.refuses()
    pauses.after[4] = proxy.passes
    assert link.store.run(acquire()).status is AcquireStatus.ACQUIRED
    assert len(pauses.seconds) == 4


def test_a_step_fails_after_ten_seconds_without_redis(link: RetryingLink, proxy: FaultProxy, pauses: Pauses) -> None:
    proxy.refuses()
    with pytest.raises(CacheUnavailable):
        link.store.run(acquire())
    assert PATIENCE_SECONDS <= sum(pauses.seconds) <= PATIENCE_SECONDS + MAX_PAUSE_SECONDS


def test_renewals_fail_at_once_without_redis(link: RetryingLink, proxy: FaultProxy, pauses: Pauses) -> None:
    proxy.refuses()
    assert [type(reply) for reply in link.store.run_each([acquire(1), acquire(2)], until=at_once)] == [
        CacheUnavailable
    ] * 2
    assert pauses.seconds == []


@pytest.mark.parametrize("link", [0.5], indirect=True)
def test_a_step_that_timed_out_is_repeated(link: RetryingLink, proxy: FaultProxy, pauses: Pauses) -> None:
    link.store.run(acquire())
    before = len(pauses.seconds)
    proxy.hangs()
    pauses.after[before + 1] = proxy.passes
    assert link.store.run(acquire()).status is AcquireStatus.ACQUIRED
    assert len(pauses.seconds) > before


@pytest.mark.parametrize(
    "refusal",
    [
        redis.BusyLoadingError("loading"),
        redis.ResponseError("BUSY Redis is busy running a script."),
        TryAgainError("Multiple keys request during rehashing of slot"),
    ],
    ids=["loading", "busy", "slot on its way"],
)
def test_a_step_waits_for_a_redis_that_refuses_it_for_a_while(
    link: RetryingLink, pauses: Pauses, monkeypatch: pytest.MonkeyPatch, refusal: redis.RedisError
) -> None:
    execute, refusals = Connections.execute, [refusal, refusal]
    monkeypatch.setattr(Connections, "execute", lambda *args: refusals.pop() if refusals else execute(*args))
    assert link.store.run(acquire()).status is AcquireStatus.ACQUIRED
    assert len(pauses.seconds) == 2


def test_a_batch_of_steps_is_repeated_when_redis_reports_loading_within_it(
    link: RetryingLink, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, refusals = Connections.begin, [redis.BusyLoadingError("loading")]

    def refusing(self: Connections, request: bytes, count: int) -> Callable[[], list[Any]]:
        finish = begin(self, request, count)
        return lambda: [*finish()[: count - 1], refusals.pop()] if refusals else finish()

    monkeypatch.setattr(Connections, "begin", refusing)
    replies = link.store.run_all([acquire(1), acquire(2)])
    assert [reply.status for reply in replies] == [AcquireStatus.ACQUIRED] * 2
    assert len(pauses.seconds) == 1


def test_a_worker_drops_its_connection_to_a_demoted_master_at_once(
    link: RetryingLink, proxy: FaultProxy, clean_redis: RedisServer, pauses: Pauses
) -> None:
    link.store.run(acquire())
    before = proxy.accepted
    with redis.Redis.from_url(clean_redis.url()) as admin:
        admin.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(CacheUnavailable, match="read only"):
                link.store.run(acquire(2))
        finally:
            admin.replicaof("NO", "ONE")
    assert pauses.seconds == []
    # The connection that was refused is not used again.
    assert link.store.run(acquire(2)).status is AcquireStatus.ACQUIRED
    assert proxy.accepted > before
