"""The parts of one worker process (Redis client, graph driver, renewals), made after the fork at the first use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import cast

import msgspec

from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.lease import AcquireReply, AcquireStatus, RecordState
from api_client.protocol.messages import RefreshItem
from api_client.transport.redis_py import node_of, translated
from api_client.transport.scripts import at_once
from api_client.trigger.broker import Broker
from refresher.errors import LoadFailed
from refresher.flow.budgets import Budgets
from refresher.flow.dead_letters import DeadLetter, DeadLetters
from refresher.flow.ports import RefreshDeps, WorkerEvents, WorkerSpans
from refresher.flow.refresh import Refresher
from refresher.flow.renewals import Renewals
from refresher.flow.run import Run
from refresher.graph import values
from refresher.graph.failures import classify_error
from refresher.graph.loader import Graph
from refresher.graph.reads import FollowsReads
from refresher.graph.thread_limits import process_is_ending
from refresher.queries import AUTO, Registry, registry
from refresher.settings import WorkerSettings
from refresher.worker.celery_fixes.soft_limit import soft_limit
from refresher.worker.in_place import in_place_deps
from refresher.worker.redis_link import RetryingLink
from refresher.worker.slots import NodeSlots, QuerySlots
from refresher.worker.version_registration import VersionRegistration


class Runtime:
    """The wired parts of one worker process."""

    def __init__(
        self,
        settings: WorkerSettings,
        broker: Broker,
        *,
        events: WorkerEvents | None = None,
        queries: Registry = registry,
        shuts_down: Callable[[], bool] = lambda: False,
        slots: NodeSlots | None = None,
    ) -> None:
        events = events or WorkerEvents()
        self.settings: WorkerSettings = settings
        self.spans: WorkerSpans = events.spans
        self.shuts_down: Callable[[], bool] = shuts_down
        self.slots: QuerySlots = QuerySlots(slots or NodeSlots(), queries, events)
        self.queries: Registry = queries
        self._cache = RetryingLink(settings.redis_url)
        self._renewals = Renewals(partial(self._cache.store.run_each, until=at_once))
        self.graph: Graph = Graph(settings, spans=self.spans, follows=_follower(queries))
        self.dead_letters: DeadLetters = DeadLetters(self._cache.client, settings.namespace)
        deps = self._deps(broker, events)
        self.refresher: Refresher = Refresher(settings, deps)
        self.in_place: Refresher = self.refresher.with_deps(in_place_deps(deps))

    def _deps(self, broker: Broker, events: WorkerEvents) -> RefreshDeps:
        store, settings = self._cache.store, self.settings
        steps = self.spans.lease_steps(store)
        budgets = Budgets(
            settings.namespace, settings.budget, steps, self._renewals.holding, events, sleep=time.sleep,
            monotonic=monotonic_seconds,
        )  # fmt: skip
        return RefreshDeps(
            lease_steps=steps,
            origin=self.spans.origin(self.graph),
            encode=values.encode,
            registry=self.queries,
            keep_leases=self._renewals.holding,
            publish=lambda item: broker.publish([item], has_waiter=False),
            write_dead_letter=self._write_dead_letter,
            monotonic=monotonic_seconds,
            sleep=time.sleep,
            events=events,
            failure_of=_failure_of,
            interruptible=soft_limit.in_load,
            hands_back=lambda error: isinstance(error, KeyboardInterrupt | SystemExit) and self.shuts_down(),
            register=VersionRegistration(store, settings, monotonic_seconds).ensure,
            share_of=budgets.share_of,
        )

    def _write_dead_letter(self, letter: DeadLetter, replaced_token: int) -> None:
        with translated():
            self.dead_letters.add(letter, replaced_token=replaced_token)

    def run_held_by(self, item: RefreshItem, owner: str) -> Run | None:
        """Return the run of ``item`` that process ``owner`` holds, by the lease record, or None if it holds none.

        Raises:
            CacheUnavailable: Redis did not answer.
        """
        key = item.key(self.settings.namespace)
        with translated():
            fields = self._cache.client.hmget(
                key.record, "state", "by", "token", "nonce", "claimed_at", "generation", "attempts"
            )
            seconds, microseconds = node_of(self._cache.client, key.record).time()
        state, holder, token, nonce, claimed_at, generation, attempts = cast("list[bytes | None]", fields)
        if state != RecordState.RUNNING.encode() or holder != owner.encode() or token is None or nonce is None:
            return None
        reply = AcquireReply(
            AcquireStatus.ACQUIRED, RecordState.RUNNING, 0.0, int(token), int(seconds) * 1_000_000 + int(microseconds),
            int(claimed_at or 0), int(generation or 0), (), b"",
        )  # fmt: skip
        item = msgspec.structs.replace(item, attempt=max(item.attempt, int(attempts or 0) + 1))
        query = self.queries.find(key.query, key.version)
        return Run(item, key, query, nonce, reply, monotonic_seconds(), monotonic_seconds)

    def close(self) -> None:
        """End the thread and the connections."""
        self._renewals.close()
        self.graph.close()
        self._cache.close()


def _follower(queries: Registry) -> FollowsReads | None:
    if not any(query.tags == AUTO for query in queries):
        return None
    from refresher.feed.auto.loads import Plans
    from refresher.feed.watches import watches

    return Plans(watches)


def _failure_of(error: BaseException) -> LoadFailed | None:
    return None if process_is_ending() else classify_error(error)


class PerProcess:
    """Makes a runtime at the first use in each process, and never shares it with a forked child."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self.make: Callable[[], Runtime] = make
        self._lock = threading.Lock()
        self._made: tuple[int, Runtime] | None = None

    def get(self) -> Runtime:
        """Return this process's runtime."""
        made = self._made
        if made is None or made[0] != os.getpid():
            with self._lock:
                made = self._made
                if made is None or made[0] != os.getpid():
                    made = self._made = (os.getpid(), self.make())
        return made[1]

    def close(self) -> None:
        """Close this process's runtime, if it has one."""
        made, self._made = self._made, None
        if made is not None and made[0] == os.getpid():
            made[1].close()
