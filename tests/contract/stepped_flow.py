"""The worker's own flow, run one step at a time: it stops before each step until the test continues it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import msgspec

from api_client.protocol.lease import AcquireReply, AcquireStatus, Call
from api_client.protocol.messages import RefreshItem
from api_client.protocol.payload import Packed
from refresher.errors import LoadFailed
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import RefreshDeps, WorkerEvents
from refresher.flow.refresh import Refresher
from refresher.graph.failures import classify_error
from refresher.queries import Loaded, Registry, query
from refresher.settings import WorkerSettings
from tests.support.lease_invariants import Watch
from tests.support.lease_steps import StepByStep
from tests.support.lease_world import ClockedWorld
from tests.support.waiting import MAX_WAIT_SECONDS

T = TypeVar("T")
SETTINGS = WorkerSettings()
REGISTRY = Registry()
query("flow", ttl=3_000, grace=3_000, into=REGISTRY)(lambda tx, n: n)
query("tagged", ttl=3_000, grace=3_000, tags=lambda value, n: [f"tag-{n}"], into=REGISTRY)(lambda tx, n: n)
LOADS: dict[str, Any] = {
    "value": None,
    "transient": LoadFailed("network", "again, please", is_transient=True),
    "permanent": LoadFailed("syntax", "never", is_transient=False),
    "shutdown": SystemExit("the worker is shutting down"),
}


class Flow(StepByStep):
    """One worker and one message. ``pending`` is its next step, None at its end."""

    def __init__(
        self, world: ClockedWorld, watch: Watch, item: RefreshItem, loads: Sequence[str], queue: list[RefreshItem]
    ) -> None:
        self._world, self._watch, self._loads, self._queue = world, watch, [LOADS[load] for load in loads], queue
        self._go, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self.pending: str | None = "begin"
        self.outcomes: list[Outcome] = []
        self.graph = "value"
        deps = RefreshDeps(
            lease_steps=self, origin=self, encode=lambda value, **_: Packed(msgspec.msgpack.encode(value)),
            registry=REGISTRY, keep_leases=lambda held: nullcontext(), publish=self._publish,
            write_dead_letter=lambda *_: None, monotonic=lambda: world.clock.now_us / 1e6,
            sleep=lambda _: self._stop("pause"), events=WorkerEvents(),
            failure_of=_failure_of, hands_back=lambda error: not isinstance(error, Exception), uniform=lambda: 0.99,
        )  # fmt: skip
        self._refresher = Refresher(SETTINGS, deps)
        self._thread = threading.Thread(target=self._work, args=(item,), daemon=True)
        self._thread.start()
        self.step()

    def step(self) -> None:
        """Take the pending step, and stop before the next."""
        self._go.release()
        assert self._parked.acquire(timeout=MAX_WAIT_SECONDS)
        if self._error is not None:
            raise self._error

    def go_on(self) -> None:
        """Take all steps to the end."""
        while self.pending:
            self.step()

    def run(self, call: Call[T]) -> T:
        """Run a step of the lease record (`LeaseStepRunner`)."""
        self._stop(call.script)
        before = self._world.look()
        reply = self._world.store.run(call)
        if isinstance(reply, AcquireReply) and reply.status is AcquireStatus.ACQUIRED:
            self._watch.acquired((reply.token, call.args[0]))  # type: ignore[arg-type]
        if call.script == "commit":
            self._watch.committed(call.args[:2], reply, before, self._world.look())  # type: ignore[arg-type]
        return reply

    def load(self, _query: Any, _calls: Any, _previous: Any, _bookmarks: Any, timeout_seconds: float) -> list[Loaded]:
        """Load with the test's next outcome (`deps.Origin`)."""
        self._stop("load")
        outcome = self._loads.pop(0) if self._loads else None
        if outcome is not None:
            raise outcome
        return [Loaded(self.graph)]

    def _publish(self, item: RefreshItem) -> None:
        self._stop("publish")
        self._queue.append(item)

    def _stop(self, step: str) -> None:
        self.pending = step
        self._parked.release()
        self._go.acquire()

    def _work(self, item: RefreshItem | None) -> None:
        self._go.acquire()
        try:
            while item is not None:
                outcome = self._refresher.refresh(item)
                self.outcomes.append(outcome)
                # The pause of a retry is Celery's affair; here the message comes at once.
                item = outcome.again if outcome.kind is OutcomeKind.RETRY else None
        except SystemExit:
            pass
        except BaseException as error:  # noqa: BLE001 - it is the test's to raise
            self._error = error
        self.pending = None
        self._parked.release()


def _failure_of(error: BaseException) -> LoadFailed | None:
    return None if isinstance(error, SystemExit) else classify_error(error)
