"""A worker's refresh on a cluster that has lost a node: what is on the others goes on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from typing import Any

import msgspec
import pytest

from api_client.errors import CacheUnavailable
from api_client.protocol import lease
from api_client.protocol.keys import tag_clock_key, tag_index_key, versions_key
from api_client.protocol.lease import AcquireStatus
from api_client.protocol.messages import RefreshItem, RefreshReason
from api_client.protocol.tags import TagWalk
from api_client.transport.scripts import drive
from refresher.flow.outcome import Ended, Outcome, OutcomeKind
from refresher.flow.ports import RefreshDeps, WorkerEvents
from refresher.flow.refresh import Refresher
from refresher.graph import values
from refresher.graph.failures import classify_error
from refresher.queries import Loaded, Registry, query
from refresher.settings import WorkerSettings
from refresher.worker import redis_link
from refresher.worker.redis_link import RetryingLink
from refresher.worker.version_registration import HEARTBEAT_SECONDS, VersionRegistration
from tests.integration.topologies.conftest import NAMESPACE
from tests.servers.redis_cluster import Cluster
from tests.support.waiting import MAX_WAIT_SECONDS


class ClusterWorker:
    """A worker's flow on a cluster of its own; records how often its link has paused before each load."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster(stack)
        # The clock's node is the one that the tests lose: the tag's own must be another one.
        self.lost = self.cluster.node_of(tag_clock_key(NAMESPACE))
        tags = (f"tag{n}" for n in itertools.count())
        self.tag = next(tag for tag in tags if self.cluster.node_of(tag_index_key(NAMESPACE, tag)) is not self.lost)
        lost_tag = next(tag for tag in tags if self.cluster.node_of(tag_index_key(NAMESPACE, tag)) is self.lost)
        self.registry = Registry()
        query("unregistered", ttl=300, grace=60, tags=[lost_tag], into=self.registry)(lambda tx, n: n)
        query("tagged", ttl=300, grace=60, tags=[self.tag], into=self.registry)(lambda tx, n: n)
        query("batched", ttl=300, grace=60, batch=8, into=self.registry)(lambda tx, calls: calls)
        names = (f"query{n}" for n in itertools.count())
        self.registered_there = [
            name for name in itertools.islice(names, 100)
            if self.cluster.node_of(versions_key(NAMESPACE, name)) is self.lost
        ][:2]  # fmt: skip
        for name in self.registered_there:
            query(name, ttl=300, grace=60, into=self.registry)(lambda tx, n: n)
        self.pauses: list[float] = []
        self.pauses_before_load: list[int] = []
        monkeypatch.setattr(redis_link, "TIMEOUT_SECONDS", MAX_WAIT_SECONDS)  # a lost node refuses
        monkeypatch.setattr(redis_link, "sleep", self.pauses.append)
        monkeypatch.setattr(redis_link, "monotonic_seconds", lambda: sum(self.pauses))
        settings = WorkerSettings(redis_url=self.cluster.url(), namespace=NAMESPACE)
        self.link = stack.enter_context(closing(RetryingLink(settings.redis_url)))
        self.now = 0.0
        self.registration = VersionRegistration(self.link.store, settings, lambda: self.now)
        self.refresher = Refresher(
            settings,
            RefreshDeps(
                lease_steps=self.link.store, origin=self, encode=values.encode, registry=self.registry,
                register=self.registration.ensure, keep_leases=lambda _: nullcontext(), publish=lambda _: None,
                write_dead_letter=lambda *_: None, monotonic=time.monotonic, sleep=lambda _: None,
                events=WorkerEvents(), failure_of=classify_error,
            ),
        )  # fmt: skip

    def items(self, query: str) -> Iterator[tuple[bool, RefreshItem]]:
        """Yield items of keys, and whether a key is on the node that gets lost."""
        for n in itertools.count():
            item = RefreshItem(query=query, params=f'{{"n":{n}}}', reason=RefreshReason.STALE)
            yield self.cluster.node_of(item.key(NAMESPACE).record) is self.lost, item

    def load(self, _query: Any, calls: Any, *_: Any) -> list[Loaded]:
        self.pauses_before_load.append(len(self.pauses))
        return [Loaded(dict(params)) for params in calls]


@pytest.fixture
def worker(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> ClusterWorker:
    return ClusterWorker(stack, monkeypatch)


def first(items: Iterator[tuple[bool, RefreshItem]], wanted: Callable[[bool], bool], count: int) -> list[RefreshItem]:
    return list(itertools.islice((item for is_lost, item in items if wanted(is_lost)), count))


def kinds(ended: list[Ended]) -> list[Any]:
    return [one.kind if isinstance(one, Outcome) else type(one) for one in ended]


def test_a_tagged_key_is_refreshed_at_once_without_the_node_of_the_tag_clock(worker: ClusterWorker) -> None:
    before, after = first(worker.items("tagged"), lambda is_lost: not is_lost, 2)
    assert worker.refresher.refresh(before).kind is OutcomeKind.COMMITTED
    worker.lost.kill()
    assert worker.refresher.refresh(after).kind is OutcomeKind.COMMITTED
    assert worker.pauses_before_load == [0, 0], "its lease was acquired, and nobody renewed it meanwhile"


def test_keys_of_queries_whose_versions_are_registered_on_a_lost_node_are_refreshed_at_once(
    worker: ClusterWorker,
) -> None:
    keys = [first(worker.items(name), lambda is_lost: not is_lost, 2) for name in worker.registered_there]
    for before, _ in keys:
        assert worker.refresher.refresh(before).kind is OutcomeKind.COMMITTED
    worker.lost.kill()
    worker.now += HEARTBEAT_SECONDS
    for _, after in keys:
        assert worker.refresher.refresh(after).kind is OutcomeKind.COMMITTED
    assert worker.pauses_before_load == [0] * 4


def test_a_run_whose_tag_can_t_be_registered_is_handed_back_and_counts_as_no_attempt(worker: ClusterWorker) -> None:
    (item,) = first(worker.items("unregistered"), lambda is_lost: not is_lost, 1)
    worker.lost.kill()
    for _ in range(WorkerSettings().max_attempts + 1):
        with pytest.raises(CacheUnavailable):
            worker.refresher.refresh(item)
    assert len(worker.pauses_before_load) == WorkerSettings().max_attempts + 1, "each has been loaded at once"
    acquired = worker.link.store.run(
        lease.acquire(
            item.key(NAMESPACE), nonce=b"a reader", claim_number=0, ticket="", lease_seconds=5, limit_seconds=5,
            retention_seconds=5,
        )
    )  # fmt: skip
    assert (acquired.status, acquired.attempts, acquired.has_overtaken) == (AcquireStatus.ACQUIRED, 0, False)


def test_without_the_node_of_the_tag_clock_no_entry_is_deleted_for_an_invalidation_of_before(
    worker: ClusterWorker,
) -> None:
    (item,) = first(worker.items("tagged"), lambda is_lost: not is_lost, 1)
    walk = TagWalk(NAMESPACE, retention_seconds=60)
    drive(walk.invalidate([worker.tag], hard=True, bookmarks=(), wait=True), worker.link.store.run_all)
    assert worker.refresher.refresh(item).kind is OutcomeKind.COMMITTED
    worker.lost.kill()
    with pytest.raises(CacheUnavailable):
        worker.refresher.refresh(msgspec.structs.replace(item, claim_number=2**52))
    assert worker.link.client.exists(item.key(NAMESPACE).entry)
    assert worker.pauses == []


@pytest.mark.promise("Protocol", "On a cluster, keys of other nodes are refreshed while a node is lost")
def test_in_a_batch_the_keys_of_other_nodes_are_refreshed_at_once(worker: ClusterWorker) -> None:
    lost = first(worker.items("batched"), bool, 2)
    others = first(worker.items("batched"), lambda is_lost: not is_lost, 2)
    both = [lost[0], others[0], lost[1], others[1]]
    worker.lost.kill()
    assert kinds(worker.refresher.refresh_together(both)) == [CacheUnavailable, OutcomeKind.COMMITTED] * 2
    assert worker.pauses_before_load == [0]


def test_a_batch_whose_keys_are_all_on_a_lost_node_waits_for_it(worker: ClusterWorker) -> None:
    lost = first(worker.items("batched"), bool, 2)
    worker.lost.kill()
    assert kinds(worker.refresher.refresh_together(lost)) == [CacheUnavailable] * 2
    assert worker.pauses_before_load == []
    assert sum(worker.pauses) >= redis_link.PATIENCE_SECONDS
