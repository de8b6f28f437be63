"""Every way a load can end has one outcome: it is counted, dead-lettered, and raised to its waiters at once.

Through the worker's own flow on a real Redis, with a reader that waits. Loads that end their process, or hang: see
`tests/acceptance/worker_faults/test_every_end_counts.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import pytest
from celery.exceptions import Reject, Retry, SoftTimeLimitExceeded, WorkerShutdown
from neo4j.exceptions import ConfigurationError, SessionExpired

from api_client import CacheClient, CacheUnavailable, ReaderSettings, RefreshFailed
from api_client.protocol.messages import RefreshItem
from api_client.trigger.broker import Broker
from refresher import TransientFailure
from refresher.embedded import RedisServer
from refresher.errors import LoadFailed
from refresher.flow.outcome import OutcomeKind
from refresher.queries import Registry, query
from refresher.settings import WorkerSettings
from refresher.worker.runtime import Runtime
from tests.support.driver_values import server_error
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("published_once")

RETRY_MAX = 2
ALL, FEW, ONE = 1 + RETRY_MAX, 2, 1
SHARED = frozenset({"network", "graph_unavailable", "configuration", "cache_unavailable"})
"""Kinds of failure of the graph or of the worker, which don't count against the key."""
_numbers = itertools.count(1)


class Panic(BaseException):
    """As pyo3's PanicException."""


class Unprintable(Exception):
    """Neither str() nor repr() of it works."""

    def __str__(self) -> str:
        raise Panic("no text")

    __repr__ = __str__


class UnprintableFailure(LoadFailed):
    """A failure as the worker's own, from a loader."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises(error: BaseException) -> Callable[..., NoReturn]:
    def load(tx: Any) -> NoReturn:
        raise error

    return load


def returns(value: Callable[[], Any]) -> Callable[..., Any]:
    return lambda tx: value()


def recurses(tx: Any) -> Any:
    return recurses(tx)


class BadIterator:
    """An iterator whose rows fail."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __iter__(self) -> BadIterator:
        return self

    def __next__(self) -> NoReturn:
        raise self._error


def bad_list(method: str, error: BaseException) -> list[int]:
    def fail(*_: object) -> NoReturn:
        raise error

    return cast("list[int]", type("BadList", (list,), {method: fail})([1, 2]))


def bad_dict(error: BaseException) -> dict[str, int]:
    def fail(_: object) -> NoReturn:
        raise error

    return cast("dict[str, int]", type("BadDict", (dict,), {"items": fail})({"a": 1}))


class NoClass:
    """Access to its class raises."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise KeyError("no class")


@dataclass
class BadField:
    """A dataclass with a field that can't be read."""

    field: int = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "field":
            raise OSError("no field")
        return super().__getattribute__(name)


def own_reference() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def rows_that_fail() -> Iterator[int]:
    yield 1
    raise KeyError("the second row")


def rows_that_go_on() -> Iterator[str]:
    while True:
        try:
            yield "x" * 1_000_000
        except GeneratorExit:
            yield "one more"


def closes_its_transaction(tx: Any) -> Any:
    tx.close()


def cuts_its_transaction(tx: Any) -> Any:
    tx.cut()
    raise SessionExpired("it is gone")


def takes_another_param(tx: Any, other: int) -> int:
    return other


def beta(answer: Any) -> dict[str, Any]:
    def function(beta0: float, degree: int, sigma: float) -> float:
        if isinstance(answer, BaseException):
            raise answer
        return cast("float", answer)

    return {"beta_function": function}


RAISED: dict[str, tuple[BaseException, str, int]] = {
    "an exception": (Exception("x"), "loader_error", ALL),
    "a mistake": (ValueError("x"), "loader_error", ONE),
    "an assertion": (AssertionError(), "loader_error", ONE),
    "an exception without a text": (Unprintable(), "loader_error", ALL),
    "an exception whose text is not Unicode": (Exception("\udc80"), "loader_error", ALL),
    "an exception with a text of megabytes": (ValueError("x" * 5_000_000), "loader_error", ONE),
    "a group of panics": (BaseExceptionGroup("g", [Panic()]), "loader_error", FEW),
    "a panic": (Panic("x"), "loader_error", FEW),
    "KeyboardInterrupt": (KeyboardInterrupt(), "loader_error", FEW),
    "sys.exit": (SystemExit(3), "loader_error", ONE),
    "WorkerShutdown": (WorkerShutdown(0), "loader_error", FEW),
    "CancelledError": (asyncio.CancelledError(), "loader_error", FEW),
    "MemoryError": (MemoryError(), "loader_error", ALL),
    "an error of the system": (OSError("x"), "network", ALL),
    "Celery's Retry": (Retry("x"), "loader_error", ALL),
    "Celery's Reject": (Reject("x", requeue=True), "loader_error", ALL),
    "the soft time limit": (SoftTimeLimitExceeded(5), "timeout", FEW),
    "a failure of the worker's own kind": (LoadFailed("own", "x", is_transient=False), "own", ONE),
    "a failure of that kind without a text": (UnprintableFailure("own", "x", is_transient=False), "own", ONE),
    "a failure that passes": (TransientFailure("x"), "transient", ALL),
    "an error of the cache": (CacheUnavailable("x"), "cache_unavailable", ALL),
    "the server's timeout": (server_error("ClientError.Transaction.TransactionTimedOut"), "timeout", FEW),
    "a syntax error": (server_error("ClientError.Statement.SyntaxError"), "syntax", ONE),
    "a lost session": (SessionExpired("x"), "graph_unavailable", ALL),
    "the driver's configuration": (ConfigurationError("x"), "configuration", ONE),
}  # fmt: skip
VALUES: dict[str, tuple[Callable[[], Any], str, int]] = {
    "without a shape": (object, "not_encodable", ONE),
    "__iter__ raises": (lambda: bad_list("__iter__", KeyError()), "not_encodable", ONE),
    "__iter__ panics": (lambda: bad_list("__iter__", Panic()), "loader_error", FEW),
    "__iter__ is interrupted": (lambda: bad_list("__iter__", KeyboardInterrupt()), "loader_error", FEW),
    "__iter__ meets the soft limit": (lambda: bad_list("__iter__", SoftTimeLimitExceeded(5)), "timeout", FEW),
    "__iter__ has no memory": (lambda: bad_list("__iter__", MemoryError()), "loader_error", ALL),
    "__iter__ has lost the cache": (lambda: bad_list("__iter__", CacheUnavailable("x")), "not_encodable", ONE),
    "__len__ raises": (lambda: bad_list("__len__", Unprintable()), "not_encodable", ONE),
    "items() raises": (lambda: bad_dict(Unprintable()), "not_encodable", ONE),
    "__class__ raises": (NoClass, "loader_error", ONE),
    "a field of a dataclass": (BadField, "not_encodable", ONE),
    "its own item": (own_reference, "not_encodable", ONE),
    "no Unicode": (lambda: "\udc80", "not_encodable", ONE),
    "far too large": (lambda: "x" * 2_000_000, "too_large", ONE),
    "rows that fail": (rows_that_fail, "loader_error", ONE),
    "rows that don't end when closed": (rows_that_go_on, "loader_error", ALL),
    "an iterator that panics": (lambda: BadIterator(Panic()), "loader_error", FEW),
}
OTHERS: dict[str, tuple[Callable[..., Any], dict[str, Any], str, int]] = {
    "it recurses without end": (recurses, {}, "loader_error", ALL),
    "it closes its transaction": (closes_its_transaction, {}, "loader_error", ONE),
    "it cuts its transaction": (cuts_its_transaction, {}, "graph_unavailable", ALL),
    "it takes another param": (takes_another_param, {}, "wrong_params", ONE),
    "β raises": (returns(dict), beta(Unprintable()), "beta_function", ONE),
    "β panics": (returns(dict), beta(Panic()), "loader_error", FEW),
    "β is no number": (returns(dict), beta("x"), "beta_function", ONE),
    "β is NaN": (returns(dict), beta(float("nan")), "beta_function", ONE),
    "the degree's graph is down": (returns(dict), {"degree": "RETURN 1"}, "graph_unavailable", ALL),
}  # fmt: skip
ENDS = {
    **{f"raises: {name}": (raises(error), {}, kind, loads) for name, (error, kind, loads) in RAISED.items()},
    **{f"value: {name}": (returns(value), {}, kind, loads) for name, (value, kind, loads) in VALUES.items()},
    **OTHERS,
}
POOL, THREAD = "in the pool's process", "on a thread of its own"
ON_BOTH = {end for end, (*_, loads) in ENDS.items() if loads == FEW} | {
    "raises: an exception", "raises: sys.exit", "it recurses without end",
}  # fmt: skip
"""The ends that a thread might change: by what is no `Exception`, or the soft limit; and one for all others."""
CASES = [*((POOL, end) for end in ENDS), *((THREAD, end) for end in ENDS if end in ON_BOTH)]


class Worker:
    """Runs what is published by the worker's own flow, on the publisher's thread; retries come at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.outcomes: list[OutcomeKind] = []

    def publish(self, items: Sequence[RefreshItem], *, has_waiter: bool) -> None:
        for item in items:
            again: RefreshItem | None = item
            while again is not None:
                outcome = self._runtime.refresher.refresh(again)
                self.outcomes.append(outcome.kind)
                again = outcome.again

    def publish_each(self, contents: Sequence[Sequence[RefreshItem]], *, has_waiter: bool) -> list[Exception | None]:
        for items in contents:
            self.publish(items, has_waiter=has_waiter)
        return [None] * len(contents)

    def waiting(self, *, has_waiter: bool = False) -> int:
        return 0

    def close(self) -> None:
        pass


class InProcess(CacheClient):
    """A reader whose refreshes run in this process."""

    def __init__(self, settings: ReaderSettings, worker: Worker) -> None:
        self._worker = worker
        super().__init__(settings)

    def _make_broker(self) -> Broker:
        return self._worker


@pytest.fixture
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the load runs: as in a prefork pool, or as in one without time limits."""
    monkeypatch.setattr("refresher.graph.loader.pool_has_limits", lambda: request.param == POOL)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("place", "end"), CASES, indirect=["place"])
def test_every_end_of_a_load_is_counted_dead_lettered_and_raised_to_the_waiter(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    loader, options, kind, loads = ENDS[end]
    monkeypatch.setattr("refresher.flow.policy.BASE_PAUSE_SECONDS", 0.05)
    name, own, begun = f"query_{next(_numbers)}", Registry(), 0

    def load(tx: Any, **params: Any) -> Any:
        nonlocal begun
        begun += 1
        return loader(tx, **params)

    load.__signature__ = inspect.signature(loader)  # type: ignore[attr-defined]
    query(name, ttl="1h", grace="1h", into=own, **options)(load)
    url = redis_server.url(0)
    settings = WorkerSettings(
        redis_url=url, namespace=name, retry_max=RETRY_MAX, cooling_seconds=600, max_value_bytes=1_000_000,
        neo4j_uri="bolt://127.0.0.1:1", lease_floor_ms=3_600_000, budget_seconds=3_600,
    )  # fmt: skip
    reader = ReaderSettings(redis_url=url, namespace=name, redis_timeout_seconds=MAX_WAIT_SECONDS)
    with (
        closing(Runtime(settings, cast("Broker", None), queries=own)) as runtime,
        InProcess(reader, worker := Worker(runtime)) as client,
    ):
        with pytest.raises(RefreshFailed) as caught:
            client.get(name, timeout=MAX_WAIT_SECONDS)
        assert (caught.value.kind, caught.value.attempts) == (kind, loads)
        assert begun == (0 if kind == "wrong_params" else loads)
        assert client.flush(MAX_WAIT_SECONDS)  # what is recorded after the error is recorded, too
        assert worker.outcomes[-1] is OutcomeKind.FAILED
        assert client.explain(name).record.state == "cooling"
        [letter] = runtime.dead_letters.newest()
        assert (letter.kind, letter.attempts, letter.failures) == (kind, loads, 0 if kind in SHARED else 1)
        assert letter.message
        assert len(letter.message) < 1_000
