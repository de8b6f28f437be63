"""What one worker process holds (Redis client, graph driver, renewals): made after the fork, at the first use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar, cast

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

from api_client.broker import Broker
from api_client.clock import monotonic_seconds
from api_client.events import guarded
from api_client.lease import AcquireReply, AcquireStatus, Call, RecordState
from api_client.lease_store import LeaseStore
from api_client.messages import RefreshItem
from api_client.redis_edge import connect, translated
from refresher import values
from refresher.dead_letters import DeadLetter, DeadLetters
from refresher.events import WorkerEvents
from refresher.graph import Graph
from refresher.queries import Registry, registry
from refresher.refresh import Refresher
from refresher.renewals import Renewals
from refresher.run import Run
from refresher.settings import WorkerSettings
from refresher.surroundings import Surroundings

T = TypeVar("T")

REDIS_TIMEOUT_SECONDS = 2.0


class TranslatingStore:
    """The lease store, with Redis' errors translated."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store

    def run(self, call: Call[T]) -> T:
        """Run one step.

        Raises:
            CacheUnavailable: also after several tries.
        """
        with translated():
            return self._store.run(call)


class Runtime:
    """The parts of one worker process, wired."""

    def __init__(
        self,
        settings: WorkerSettings,
        broker: Broker,
        *,
        events: WorkerEvents | None = None,
        queries: Registry = registry,
    ) -> None:
        self.settings = settings
        self._redis = worker_redis(settings.redis_url)
        # A master that has become a replica answers on as before, and refuses each step: connections made anew lead to
        # whoever is master at this address now. Those in use go when they are refused themselves.
        store = LeaseStore(
            self._redis, on_read_only=lambda: self._redis.connection_pool.disconnect(inuse_connections=False)
        )
        self._renewals = Renewals(store)
        self.graph: Graph = Graph(settings)
        self.dead_letters: DeadLetters = DeadLetters(self._redis, settings.namespace)

        def publish(item: RefreshItem) -> None:
            broker.publish([item], someone_waits=False)

        def bury(letter: DeadLetter, replaced_token: int) -> None:
            with translated():
                self.dead_letters.add(letter, replaced_token=replaced_token)

        self.refresher: Refresher = Refresher(
            settings,
            Surroundings(
                records=TranslatingStore(store),
                origin=self.graph,
                encode=values.encode,
                registry=queries,
                hold=self._renewals.holding,
                publish=publish,
                bury=bury,
                monotonic=monotonic_seconds,
                sleep=time.sleep,
                events=guarded(events or WorkerEvents(), WorkerEvents),
            ),
        )

    def run_held_by(self, item: RefreshItem, by: str) -> Run | None:
        """Return the run of ``item`` that process ``by`` holds, from the lease record; None: it holds none.

        Raises:
            CacheUnavailable: Redis could not be asked.
        """
        key = item.key(self.settings.namespace)
        with translated():
            fields = self._redis.hmget(key.record, "state", "by", "token", "nonce", "claimed_at", "generation")
            seconds, microseconds = self._redis.time()
        state, holder, token, nonce, claimed_at, generation = cast("list[bytes | None]", fields)
        if state != RecordState.RUNNING.encode() or holder != by.encode() or token is None or nonce is None:
            return None
        reply = AcquireReply(
            AcquireStatus.ACQUIRED, RecordState.RUNNING, 0.0, int(token), int(seconds) * 1_000_000 + int(microseconds),
            int(claimed_at or 0), int(generation or 0), (), b"",
        )  # fmt: skip
        return Run(item, key, nonce, reply, monotonic_seconds(), monotonic_seconds)

    def close(self) -> None:
        """End thread and connections."""
        self._renewals.close()
        self.graph.close()
        self._redis.close()


def worker_redis(url: str) -> redis.Redis:
    """Return a client that tries again for some seconds: a worker can wait, and every step may be repeated."""
    patient = Retry(
        ExponentialWithJitterBackoff(base=0.05, cap=1.0), 5, supported_errors=(ConnectionError, TimeoutError)
    )
    return connect(url, timeout_seconds=REDIS_TIMEOUT_SECONDS, retry=patient)


class PerProcess:
    """Makes a runtime at the first use in each process, and never shares it with a forked child."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self.make = make
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
