"""A refresher whose dependencies are all fakes: a test sets their replies, and reads the diary of its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from api_client.protocol import payload
from api_client.protocol.entry import decode_header
from api_client.protocol.keys import make_key
from api_client.protocol.lease import (
    AcquireReply,
    AcquireStatus,
    Call,
    ClaimReply,
    ClaimStatus,
    CommitStatus,
    FailReply,
    RecordState,
)
from api_client.protocol.messages import RefreshItem, RefreshReason
from refresher.errors import LoadFailed
from refresher.flow.dead_letters import DeadLetter
from refresher.flow.ports import RefreshDeps, WorkerEvents
from refresher.flow.refresh import Refresher
from refresher.flow.renewals import HeldLease
from refresher.graph.failures import classify_error
from refresher.queries import Loaded, Registry, query
from refresher.settings import WorkerSettings
from tests.support.lease_steps import StepByStep

TOKEN, NOW_US, CLAIMED_AT_US = 1_000, 1_800_000_000_000_000, 1_799_999_998_000_000
ITEM = RefreshItem(query="q", params='{"n":1}', claim_number=7, reason=RefreshReason.STALE)
KEY = make_key("cache", "q", {"n": 1}, 1)
ACQUIRED = AcquireReply(
    AcquireStatus.ACQUIRED, RecordState.RUNNING, 5.0, TOKEN, NOW_US, CLAIMED_AT_US, 900, ("b1",), b""
)


def failing(kind: str = "deadlock", *, transient: bool = True, most: int | None = None) -> LoadFailed:
    return LoadFailed(kind, "as the graph said", is_transient=transient, max_attempts=most)


class Replies:
    """Replies to one step, in turn."""

    def __init__(self, *replies: Any) -> None:
        self._left = deque(replies)

    def next(self) -> Any:
        return self._left.popleft()


class Worker(WorkerEvents, StepByStep):
    """A refresher with fake dependencies, and a diary of its steps in order."""

    def __init__(self, **settings: Any) -> None:
        self.settings = WorkerSettings(**settings)
        self.diary: list[tuple[Any, ...]] = []
        self.calls: dict[str, Call[Any]] = {}
        self.replies: dict[str, Any] = {
            "acquire": ACQUIRED, "commit": CommitStatus.ACCEPTED, "retry": True, "fail": FailReply(30.0, 2, 77),
            "hand_back": 7, "versions": frozenset(),
            "claim": ClaimReply(ClaimStatus.CLAIMED, RecordState.QUEUED, 60.0, "", 0, 8, 8, NOW_US), "unclaim": True,
        }  # fmt: skip
        self.loads: deque[Any] = deque()
        self.load_seconds = 0.25
        self.now, self.u = 50.0, 0.5
        self.timeouts: list[float] = []
        self.held: list[HeldLease] = []
        self.letters: list[DeadLetter] = []
        self.shuts_down = True
        self.publish_error: Exception | None = None
        self.bury_error: Exception | None = None
        self.registry = Registry()
        query("q", ttl=300, grace=60, into=self.registry)(lambda tx, n, previous=None: n)
        self.deps = RefreshDeps(
            lease_steps=self, origin=self, encode=self._encode, registry=self.registry, keep_leases=self._hold,
            publish=self._publish, write_dead_letter=self._bury, monotonic=lambda: self.now, sleep=self._sleep,
            events=self, failure_of=self._failure_of, hands_back=lambda _: self.shuts_down, uniform=lambda: self.u,
        )  # fmt: skip
        self.refresher = Refresher(self.settings, self.deps)

    def run(self, call: Call[Any]) -> Any:
        self.diary.append((call.script,))
        self.calls[call.script] = call
        reply = self.replies[call.script]
        if isinstance(reply, Replies):
            reply = reply.next()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def load(self, _query: Any, calls: Any, _previous: Any, bookmarks: Any, timeout_seconds: float) -> list[Loaded]:
        (params,) = calls
        self.diary.append(("load", dict(params), tuple(bookmarks)))
        self.timeouts.append(timeout_seconds)
        self.now += self.load_seconds
        outcome = self.loads.popleft() if self.loads else "value"
        if isinstance(outcome, BaseException):
            raise outcome
        outcome = outcome() if callable(outcome) else outcome
        return [outcome if isinstance(outcome, Loaded) else Loaded(outcome, 10)]

    def _encode(self, value: Any, **_: Any) -> payload.Packed:
        if isinstance(value, LoadFailed):
            raise value
        return payload.Packed(payload.encode(value) if isinstance(value, str) else b"\xa5value")

    @contextmanager
    def _hold(self, leases: Sequence[HeldLease]) -> Iterator[None]:
        self.held += leases
        self.diary.append(("hold",))
        yield
        self.diary.append(("let go",))

    def _publish(self, item: RefreshItem) -> None:
        self.diary.append(("publish", item.claim_number, item.reason, item.ticket))
        if self.publish_error:
            raise self.publish_error

    def _bury(self, letter: DeadLetter, replaced_token: int) -> None:
        self.diary.append(("bury", replaced_token))
        if self.bury_error:
            raise self.bury_error
        self.letters.append(letter)

    def _failure_of(self, error: BaseException) -> LoadFailed | None:
        return None if isinstance(error, SystemExit | KeyboardInterrupt) else classify_error(error)

    def _sleep(self, seconds: float) -> None:
        self.diary.append(("sleep", seconds))
        self.now += seconds

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        self.diary.append(("failed", kind, attempts))

    def rejected(self, query: str, *, why: str) -> None:
        self.diary.append(("rejected", why))

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        self.diary.append(("committed", delta_seconds, run_seconds, as_stale))

    def skipped(self, query: str, *, why: str) -> None:
        self.diary.append(("skipped", why))

    def steps(self) -> list[str]:
        return [entry[0] for entry in self.diary]

    def header(self) -> Any:
        return decode_header(self.calls["commit"].args[2], KEY.digest)


def interrupt_first_acquire(worker: Worker, end: BaseException) -> list[Call[Any]]:
    """Return the list of calls to come."""
    asked: list[Call[Any]] = []
    run = worker.run

    def interrupted(call: Call[Any]) -> Any:
        reply = run(call)
        if call.script == "acquire":
            asked.append(call)
            if len(asked) == 1:
                raise end
        return reply

    worker.run = interrupted  # type: ignore[method-assign]
    return asked
