"""Cost of a trigger with nothing left to do, against two libraries that drop duplicates."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from api_client import CacheClient, ReaderEvents, RefreshReason
from api_client.config.broker import refresh_queue
from api_client.protocol import lease
from api_client.protocol.clock import monotonic_seconds
from api_client.transport.link import CacheLink
from api_client.trigger.backlog import Trigger
from api_client.trigger.broker import CeleryBroker
from api_client.trigger.claim_and_publish import BatchPublisher
from api_client.trigger.history import DecisionLog
from api_client.trigger.private_app import PublishingApp
from api_client.trigger.publisher import BATCH
from api_client.trigger.suppression import TriggerSuppressor
from benchmarks.apparatus.entries import QUERY, Seeder, params_of
from benchmarks.apparatus.graph import GraphTarget
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import Tally, median, turns
from benchmarks.reports.charts import bars
from benchmarks.reports.results import Figure, Must, Result, Table, Target, figure
from benchmarks.worker.options import WorkerOptions

GROUP: Final = "duplicates"
_COLUMNS: Final = ("trigger", "us_each", "note")
_SETTLE_SECONDS: Final = 30.0
_LOCK_SECONDS: Final = 3_600
_PARAMS: Final = {"person_id": 42}
# Never the same number twice: a claim of five seconds ago would be published again, and is no duplicate any more.
_numbers = count(500_000_000)

Act: TypeAlias = Callable[[], object]


class Opened(NamedTuple):
    """Ways to trigger: a refresh that is accepted, which is not timed, and the same again, which is refused."""

    first: Act
    again: Act


class Duplicate(NamedTuple):
    """One way to trigger twice; ``opened`` connects, and one ``again`` is so many duplicates at once."""

    title: str
    opened: Callable[[Servers, ExitStack], Opened]
    note: str = ""
    at_once: int = 1


def _set_nx(servers: Servers, stack: ExitStack) -> Opened:
    client = stack.enter_context(servers.control())
    lock = partial(client.set, "locked", "1", nx=True, ex=_LOCK_SECONDS)
    return Opened(lock, lock)


def _celery_singleton(servers: Servers, stack: ExitStack) -> Opened:
    """Send SET NX, and GET of the task that has the lock."""
    from celery_singleton import Singleton  # type: ignore[import-untyped, unused-ignore]

    app = _app(servers, stack)
    app.conf.update(singleton_backend_url=servers.control_url, singleton_lock_expiry=_LOCK_SECONDS)
    task: Any = app.task(name="bench.singleton", base=Singleton)(_friends_of)
    send = partial(task.apply_async, kwargs=_PARAMS)
    return Opened(send, send)


def _celery_once(servers: Servers, stack: ExitStack) -> Opened:
    """Take a lock of redis-py, and its PTTL."""
    from celery_once import QueueOnce  # type: ignore[import-untyped, unused-ignore]

    app = _app(servers, stack)
    app.conf.ONCE = {
        "backend": "celery_once.backends.Redis",
        "settings": {"url": servers.control_url, "default_timeout": _LOCK_SECONDS},
    }
    task: Any = app.task(name="bench.once", base=QueueOnce, once={"graceful": True})(_friends_of)
    send = partial(task.apply_async, kwargs=_PARAMS)
    return Opened(send, send)


def _friends_of(person_id: int) -> None:
    """Never run: nobody consumes."""


def _app(servers: Servers, stack: ExitStack) -> PublishingApp:
    app = stack.enter_context(closing(PublishingApp.to(servers.broker_url, _SETTLE_SECONDS)))
    # Where `drop_messages` finds what was triggered first.
    app.conf.task_default_queue = refresh_queue(servers.namespace)
    return app


def _publisher(at_once: int, servers: Servers, stack: ExitStack) -> Opened:
    """Let the publisher handle triggers of stale entries, all triggered by another process."""
    seeder, link = _seeder(servers, stack), _link(servers, stack)
    broker = stack.enter_context(closing(CeleryBroker(servers.broker_url, servers.namespace)))
    publication = BatchPublisher(
        servers.lenient_settings(), link, broker, TriggerSuppressor(monotonic=monotonic_seconds), DecisionLog(),
        ReaderEvents(), monotonic=monotonic_seconds,
    )  # fmt: skip
    triggers: list[Trigger] = []

    def first() -> None:
        numbers = [next(_numbers) for _ in range(at_once)]
        seeder.put(numbers, soft_in_seconds=-1.0)
        triggers[:] = [Trigger(seeder.key(number), RefreshReason.STALE) for number in numbers]
        publication.handle(triggers)

    return Opened(first, lambda: publication.handle(triggers))


def _claim(servers: Servers, stack: ExitStack) -> Opened:
    seeder, link = _seeder(servers, stack), _link(servers, stack)
    keys = [seeder.key(next(_numbers))]

    def again() -> None:
        claim_id = uuid.uuid4().hex
        link.run(lease.claim(keys[-1], claim_id=claim_id, seen_token=None, queue_ttl_seconds=60, retention_seconds=60))

    def first() -> None:
        keys[:] = [seeder.key(next(_numbers))]
        again()

    return Opened(first, again)


def _read(soft_in_seconds: float, servers: Servers, stack: ExitStack) -> Opened:
    seeder = _seeder(servers, stack)
    client = stack.enter_context(CacheClient(servers.lenient_settings()))
    params: dict[str, Any] = {}

    def again() -> None:
        client.get(QUERY, params)

    def first() -> None:
        number = next(_numbers)
        seeder.put([number], soft_in_seconds=soft_in_seconds)
        params.update(params_of(number))
        again()
        client.flush(_SETTLE_SECONDS)

    return Opened(first, again)


def _seeder(servers: Servers, stack: ExitStack) -> Seeder:
    return Seeder(stack.enter_context(servers.plain()), servers.namespace)


def _link(servers: Servers, stack: ExitStack) -> CacheLink:
    settings = servers.lenient_settings()
    link = CacheLink(settings.redis_url, settings.redis_timeout_seconds, settings.redis_reply_timeout_seconds)
    return stack.enter_context(closing(link))


_SET_NX: Final = Duplicate("redis-py: a SET NX that fails", _set_nx)
_SINGLETON: Final = Duplicate("celery-singleton", _celery_singleton, "apply_async; its lock goes with the task")
_ONCE: Final = Duplicate("celery-once", _celery_once, "apply_async, graceful")
_TRIGGER: Final = Duplicate(
    "ours, already triggered by another process", partial(_publisher, 1), "all that the publisher does"
)
_TRIGGERS: Final = Duplicate(
    f"{_TRIGGER.title}, {BATCH} together", partial(_publisher, BATCH),
    "as the publisher takes them where many keys are read", BATCH,
)  # fmt: skip
_CLAIM: Final = Duplicate("ours, the claim alone", _claim, "one step in Redis")
_FRESH: Final = Duplicate("ours, a read of a fresh entry", partial(_read, 3_600.0), "to compare with")
_TRIGGERED: Final = Duplicate(
    "ours, a read of a stale entry, already triggered", partial(_read, -1.0),
    "by the same process, which is silent for up to 1 s",
)  # fmt: skip
_PEERS: Final = (_SINGLETON, _ONCE)
_OURS: Final = (_TRIGGER, _TRIGGERS, _CLAIM)
_ALL: Final = (_SET_NX, *_PEERS, *_OURS, _FRESH, _TRIGGERED)


def measured_duplicates(servers: Servers, _: GraphTarget, options: WorkerOptions) -> Result:
    """Measure, turn by turn. No worker runs: what was triggered first stays in the queue."""
    scale, tally = options.scale, Tally()
    notes = {one.title: one.note for one in _ALL}
    order = random.Random(options.seed)  # noqa: S311 - no secret
    with ExitStack() as stack:
        competitors = _set_up(servers, stack, notes)
        for turn in turns(list(competitors), rounds=scale.rounds, slices=scale.slices, rng=order):
            opened, at_once = competitors[turn.name]
            opened.first()
            times = -(-scale.duplicates // at_once)
            began = time.perf_counter()
            for _number in range(times):
                opened.again()
            tally.add(turn, at_once * times, time.perf_counter() - began)
    servers.drop_messages()
    return _result(tally, notes)


def _set_up(servers: Servers, stack: ExitStack, notes: dict[str, str]) -> dict[str, tuple[Opened, int]]:
    competitors: dict[str, tuple[Opened, int]] = {}
    for one in _ALL:
        try:
            opened = one.opened(servers, stack)
            opened.first()
            opened.again()
        except ModuleNotFoundError as error:
            notes[one.title] = f"not installed: {error.name}"
        except Exception as error:  # noqa: BLE001 - others' code; the rest of them still runs
            notes[one.title] = f"does not work: {type(error).__name__}: {error}"[:200]
        else:
            competitors[one.title] = opened, one.at_once
    return competitors


def _result(tally: Tally, notes: dict[str, str]) -> Result:
    took = {one.title: [seconds * 1e6 for seconds in tally.seconds_per_read(one.title)] for one in _ALL}
    rows = [(title, median(rounds), notes[title]) for title, rounds in took.items()]
    ours = tuple(one.title for one in (*_OURS, _FRESH, _TRIGGERED))
    return Result(
        GROUP, "a refresh that has been triggered already", figures=[*_against_peers(tally), *_in_process(took)],
        tables=[Table("a trigger with nothing left to do, µs", _COLUMNS, rows)],
        charts=[bars(GROUP, "A trigger with nothing left to do", "µs", {"µs": took}, ours=ours)],
    )  # fmt: skip


def _against_peers(tally: Tally) -> Iterator[Figure]:
    for peer in _PEERS:
        for ours in _OURS:
            ratios = tally.speed_ratios(ours.title, peer.title) if tally.seconds_per_read(peer.title) else ()
            target = Target(Must.MORE_THAN, 1) if ours is not _CLAIM else None
            yield figure(f"{ours.title}: {peer.title} takes × as long", ratios, target=target)


def _in_process(took: dict[str, list[float]]) -> Iterator[Figure]:
    """Yield what a read pays for finding that its own process has triggered already."""
    more = tuple(one - other for one, other in zip(took[_TRIGGERED.title], took[_FRESH.title], strict=True))
    yield figure("ours, already triggered by the same process: a read takes longer by", more, "µs")
    for peer in _PEERS:
        costs = took[peer.title]
        less = tuple(cost - one for cost, one in zip(costs, more, strict=True)) if costs else ()
        yield figure(f"{peer.title}: a duplicate takes longer than that by", less, "µs", Target(Must.MORE_THAN, 0))
