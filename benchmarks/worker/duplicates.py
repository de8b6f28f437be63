"""Cost of a trigger with nothing left to do, against two libraries that drop duplicates."""

from __future__ import annotations

import random
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any, ClassVar, Final, TypeVar, cast

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
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import Tally, median, turns
from benchmarks.reports.charts import bars
from benchmarks.reports.results import Figure, Must, Result, Table, Target, figure
from benchmarks.worker.options import WorkerOptions

T = TypeVar("T")

_SETTLE_SECONDS: Final = 30.0
_PARAMS: Final = {"person_id": 42}
# Never the same number twice: a claim of five seconds ago would be published again, and is no duplicate any more.
_numbers = count(500_000_000)


class Duplicate(ABC):
    """One way to trigger twice. Made with the connections that it needs.

    ``at_once``: how many duplicates one `trigger_again` is.
    """

    title: ClassVar[str]
    note: ClassVar[str] = ""
    at_once: ClassVar[int] = 1

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._closing = ExitStack()
        self._open()

    def _opened(self, client: T) -> T:
        """Return the client, which `close` closes."""
        self._closing.callback(cast("Any", client).close)
        return client

    def close(self) -> None:
        """Disconnect."""
        self._closing.close()

    @abstractmethod
    def _open(self) -> None:
        """Connect."""

    def trigger_first(self) -> None:
        """Trigger a refresh, which is accepted; not timed."""
        self.trigger_again()

    @abstractmethod
    def trigger_again(self) -> None:
        """Trigger the same again, which is refused."""


class SetNx(Duplicate):
    """The least that a lock in Redis costs."""

    title = "redis-py: a SET NX that fails"

    def _open(self) -> None:
        self._redis = self._opened(self._servers.control())

    def trigger_first(self) -> None:
        self._redis.set("locked", "1", nx=True, ex=3_600)

    def trigger_again(self) -> None:
        self._redis.set("locked", "2", nx=True, ex=3_600)


class CelerySingleton(Duplicate):
    """``Singleton`` of celery-singleton: SET NX, and GET of the task that has the lock."""

    title = "celery-singleton"
    note = "apply_async; its lock goes with the task"

    def _open(self) -> None:
        from celery_singleton import Singleton  # type: ignore[import-untyped, unused-ignore]

        self._app = self._opened(_app(self._servers))
        self._app.conf.update(singleton_backend_url=self._servers.control_url, singleton_lock_expiry=3_600)
        self._task: Any = self._app.task(name="bench.singleton", base=Singleton)(_friends_of)

    def trigger_again(self) -> None:
        self._task.apply_async(kwargs=_PARAMS)


class CeleryOnce(Duplicate):
    """``QueueOnce`` of celery-once: a lock of redis-py, and PTTL of it."""

    title = "celery-once"
    note = "apply_async, graceful"

    def _open(self) -> None:
        from celery_once import QueueOnce  # type: ignore[import-untyped, unused-ignore]

        self._app = self._opened(_app(self._servers))
        self._app.conf.ONCE = {
            "backend": "celery_once.backends.Redis",
            "settings": {"url": self._servers.control_url, "default_timeout": 3_600},
        }
        once = {"graceful": True}
        self._task: Any = self._app.task(name="bench.once", base=QueueOnce, once=once)(_friends_of)

    def trigger_again(self) -> None:
        self._task.apply_async(kwargs=_PARAMS)


class _Ours(Duplicate):
    """Entries of this project's query, and a link to their Redis."""

    def _open(self) -> None:
        self._seeder = Seeder(self._opened(self._servers.plain()), self._servers.namespace)
        self._settings = settings = self._servers.lenient_settings()
        self._link = self._opened(
            CacheLink(settings.redis_url, settings.redis_timeout_seconds, settings.redis_reply_timeout_seconds)
        )


class OurTriggers(_Ours):
    """The publisher's work on a batch of triggers of stale entries, all triggered by another process."""

    title: ClassVar[str] = f"ours, already triggered by another process, {BATCH} together"
    note = "as the publisher takes them where many keys are read"
    at_once = BATCH

    def _open(self) -> None:
        super()._open()
        broker = self._opened(CeleryBroker(self._servers.broker_url, self._servers.namespace))
        self._publication = BatchPublisher(
            self._settings, self._link, broker,
            TriggerSuppressor(monotonic=monotonic_seconds), DecisionLog(), ReaderEvents(), monotonic=monotonic_seconds,
        )  # fmt: skip
        self._triggers: Sequence[Trigger] = ()

    def trigger_first(self) -> None:
        numbers = [next(_numbers) for _ in range(self.at_once)]
        self._seeder.put(numbers, soft_in_seconds=-1.0)
        self._triggers = [Trigger(self._seeder.key(number), RefreshReason.STALE) for number in numbers]
        self._publication.handle(self._triggers)

    def trigger_again(self) -> None:
        self._publication.handle(self._triggers)


class OurTrigger(OurTriggers):
    """The same with one trigger at a time."""

    title = "ours, already triggered by another process"
    note = "all that the publisher does"
    at_once = 1


class OurClaim(_Ours):
    """Its one step in Redis."""

    title = "ours, the claim alone"
    note = "one step in Redis"

    def trigger_first(self) -> None:
        self._key = self._seeder.key(next(_numbers))
        self.trigger_again()

    def trigger_again(self) -> None:
        claim_id = uuid.uuid4().hex
        self._link.run(
            lease.claim(self._key, claim_id=claim_id, seen_token=None, queue_ttl_seconds=60, retention_seconds=60)
        )


class ReadFresh(_Ours):
    """A read that triggers nothing."""

    title = "ours, a read of a fresh entry"
    note = "to compare with"
    soft_in_seconds: ClassVar[float] = 3_600.0

    def _open(self) -> None:
        super()._open()
        self._client = self._opened(CacheClient(self._settings))

    def trigger_first(self) -> None:
        number = next(_numbers)
        self._seeder.put([number], soft_in_seconds=self.soft_in_seconds)
        self._params = params_of(number)
        self.trigger_again()
        self._client.flush(_SETTLE_SECONDS)

    def trigger_again(self) -> None:
        self._client.get(QUERY, self._params)


class ReadAlreadyTriggered(ReadFresh):
    """A read of a stale entry, which this process has triggered."""

    title = "ours, a read of a stale entry, already triggered"
    note = "by the same process, which is silent for up to 1 s"
    soft_in_seconds: ClassVar[float] = -1.0


def _friends_of(person_id: int) -> None:
    """Never run: nobody consumes."""


def _app(servers: Servers) -> PublishingApp:
    app = PublishingApp.to(servers.broker_url, _SETTLE_SECONDS)
    # Where `drop_messages` finds what was triggered first.
    app.conf.task_default_queue = refresh_queue(servers.namespace)
    return app


GROUP: Final = "duplicates"
_COLUMNS: Final = ("trigger", "us_each", "note")
_OURS: Final = (OurTrigger, OurTriggers, OurClaim)
_PEERS: Final = (CelerySingleton, CeleryOnce)
_OURS_TITLES: Final = tuple(kind.title for kind in (*_OURS, ReadFresh, ReadAlreadyTriggered))
_KINDS: Final[tuple[type[Duplicate], ...]] = (SetNx, *_PEERS, *_OURS, ReadFresh, ReadAlreadyTriggered)


def measured_duplicates(servers: Servers, options: WorkerOptions) -> Result:
    """Measure, turn by turn. No worker runs: what was triggered first stays in the queue."""
    scale, tally = options.scale, Tally()
    notes: dict[str, str] = {}
    order = random.Random(options.seed)  # noqa: S311 - no secret
    with ExitStack() as stack:
        competitors = _set_up(servers, stack, notes)
        for turn in turns(list(competitors), rounds=scale.rounds, slices=scale.slices, rng=order):
            competitor = competitors[turn.name]
            competitor.trigger_first()
            triggers = competitor.at_once * -(-scale.duplicates // competitor.at_once)
            tally.add(turn, triggers, _seconds(competitor.trigger_again, triggers // competitor.at_once))
    servers.drop_messages()
    return _result(tally, notes)


def _set_up(servers: Servers, stack: ExitStack, notes: dict[str, str]) -> dict[str, Duplicate]:
    competitors: dict[str, Duplicate] = {}
    for kind in _KINDS:
        notes[kind.title] = kind.note
        try:
            competitor = kind(servers)
            stack.callback(competitor.close)
            competitor.trigger_first()
            competitor.trigger_again()
        except ModuleNotFoundError as error:
            notes[kind.title] = f"not installed: {error.name}"
        except Exception as error:  # noqa: BLE001 - others' code; the rest of them still runs
            notes[kind.title] = f"does not work: {type(error).__name__}: {error}"[:200]
        else:
            competitors[kind.title] = competitor
    return competitors


def _seconds(ask: Callable[[], None], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        ask()
    return time.perf_counter() - began


def _result(tally: Tally, notes: dict[str, str]) -> Result:
    took = {kind.title: [seconds * 1e6 for seconds in tally.seconds_per_read(kind.title)] for kind in _KINDS}
    rows = [(title, median(rounds), notes[title]) for title, rounds in took.items()]
    figures = [*_against_peers(tally), *_in_process(took)]
    return Result(
        GROUP, "a refresh that has been triggered already", figures=figures,
        tables=[Table("a trigger with nothing left to do, µs", _COLUMNS, rows)],
        charts=[bars(GROUP, "A trigger with nothing left to do", "µs", {"µs": took}, ours=_OURS_TITLES)],
    )  # fmt: skip


def _against_peers(tally: Tally) -> Iterator[Figure]:
    for peer in _PEERS:
        for ours in _OURS:
            yield figure(
                f"{ours.title}: {peer.title} takes × as long",
                tally.speed_ratios(ours.title, peer.title) if tally.seconds_per_read(peer.title) else (),
                target=Target(Must.MORE_THAN, 1) if ours is not OurClaim else None
            )  # fmt: skip


def _in_process(took: dict[str, list[float]]) -> Iterator[Figure]:
    """Yield what a read pays for finding that its own process has triggered already."""
    triggers, fresh = took[ReadAlreadyTriggered.title], took[ReadFresh.title]
    more = tuple(one - other for one, other in zip(triggers, fresh, strict=True))
    yield figure("ours, already triggered by the same process: a read takes longer by", more, "µs")
    for peer in _PEERS:
        costs = took[peer.title]
        less = tuple(cost - one for cost, one in zip(costs, more, strict=True)) if costs else ()
        yield figure(
            f"{peer.title}: a duplicate takes longer than that by", less, "µs", Target(Must.MORE_THAN, 0)
        )  # fmt: skip
