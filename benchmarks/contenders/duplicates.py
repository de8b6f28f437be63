"""Who asks for something that has been asked for already: a class each."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any, ClassVar, Final

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
from benchmarks.payloads import PayloadKind, value_of
from benchmarks.places import Place
from benchmarks.seeding import QUERY, Seeder, params_of

_SETTLE_SECONDS: Final = 30.0
_PARAMS: Final = {"person_id": 42}
# Never the same number twice: a claim of five seconds ago would be published again, and is no duplicate any more.
_numbers = count(500_000_000)


class Duplicate(ABC):
    """One way to ask twice. Made with the connections that it needs.

    ``at_once``: how many duplicates an `ask_again` is.
    """

    title: ClassVar[str]
    note: ClassVar[str] = ""
    at_once: ClassVar[int] = 1

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Connect."""

    def ask_first(self) -> None:
        """Ask for something, and be granted it; not timed."""
        self.ask_again()

    @abstractmethod
    def ask_again(self) -> None:
        """Ask for the same again, and be refused."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class SetNx(Duplicate):
    """The least that a lock in Redis costs."""

    title = "redis-py: a SET NX that fails"

    def _open(self) -> None:
        self._redis = self._place.control()

    def ask_first(self) -> None:
        self._redis.set("locked", "1", nx=True, ex=3_600)

    def ask_again(self) -> None:
        self._redis.set("locked", "2", nx=True, ex=3_600)

    def close(self) -> None:
        self._redis.close()


class CelerySingleton(Duplicate):
    """``Singleton`` of celery-singleton: SET NX, and GET of the task that has the lock."""

    title = "celery-singleton"
    note = "apply_async; its lock goes with the task"

    def _open(self) -> None:
        from celery_singleton import Singleton  # type: ignore[import-untyped, unused-ignore]

        self._app = _app(self._place)
        self._app.conf.update(singleton_backend_url=self._place.control_url, singleton_lock_expiry=3_600)
        self._task: Any = self._app.task(name="bench.singleton", base=Singleton)(_friends_of)

    def ask_again(self) -> None:
        self._task.apply_async(kwargs=_PARAMS)

    def close(self) -> None:
        self._app.close()


class CeleryOnce(Duplicate):
    """``QueueOnce`` of celery-once: a lock of redis-py, and PTTL of it."""

    title = "celery-once"
    note = "apply_async, graceful"

    def _open(self) -> None:
        from celery_once import QueueOnce  # type: ignore[import-untyped, unused-ignore]

        self._app = _app(self._place)
        self._app.conf.ONCE = {
            "backend": "celery_once.backends.Redis",
            "settings": {"url": self._place.control_url, "default_timeout": 3_600},
        }
        once = {"graceful": True}
        self._task: Any = self._app.task(name="bench.once", base=QueueOnce, once=once)(_friends_of)

    def ask_again(self) -> None:
        self._task.apply_async(kwargs=_PARAMS)

    def close(self) -> None:
        self._app.close()


class OurTriggers(Duplicate):
    """What the publisher's thread does with a batch of triggers of stale entries, all asked for by another process."""

    title: ClassVar[str] = f"ours, asked by another process, {BATCH} together"
    note = "as the publisher takes them where many keys are read"
    at_once = BATCH

    def _open(self) -> None:
        place = self._place
        self._redis = place.plain()
        self._broker = CeleryBroker(place.broker_url, place.namespace)
        self._seeder = Seeder(self._redis, place.namespace, value_of(PayloadKind.ROWS))
        settings = place.patient_settings()
        self._link = CacheLink(settings.redis_url, settings.redis_timeout_seconds, settings.redis_reply_timeout_seconds)
        self._publication = BatchPublisher(
            settings, self._link, self._broker,
            TriggerSuppressor(monotonic=monotonic_seconds), DecisionLog(), ReaderEvents(), monotonic=monotonic_seconds,
        )  # fmt: skip
        self._triggers: Sequence[Trigger] = ()

    def ask_first(self) -> None:
        numbers = [next(_numbers) for _ in range(self.at_once)]
        self._seeder.put(numbers, soft_in_seconds=-1.0)
        self._triggers = [Trigger(self._seeder.key(number), RefreshReason.STALE) for number in numbers]
        self._publication.handle(self._triggers)

    def ask_again(self) -> None:
        self._publication.handle(self._triggers)

    def close(self) -> None:
        self._link.close()
        self._redis.close()
        self._broker.close()


class OurTrigger(OurTriggers):
    """The same with one trigger at a time."""

    title = "ours, asked by another process"
    note = "all that the publisher does"
    at_once = 1


class OurClaim(Duplicate):
    """Its one step in Redis."""

    title = "ours, the claim alone"
    note = "one step in Redis"

    def _open(self) -> None:
        self._redis = self._place.plain()
        settings = self._place.patient_settings()
        self._link = CacheLink(settings.redis_url, settings.redis_timeout_seconds, settings.redis_reply_timeout_seconds)
        self._seeder = Seeder(self._redis, self._place.namespace, value_of(PayloadKind.ROWS))

    def ask_first(self) -> None:
        self._key = self._seeder.key(next(_numbers))
        self.ask_again()

    def ask_again(self) -> None:
        claim_id = uuid.uuid4().hex
        self._link.run(
            lease.claim(self._key, claim_id=claim_id, seen_token=None, queue_ttl_seconds=60, retention_seconds=60)
        )

    def close(self) -> None:
        self._link.close()
        self._redis.close()


class ReadFresh(Duplicate):
    """A read that has nothing to ask for."""

    title = "ours, a read of a fresh entry"
    note = "to compare with"
    soft_in_seconds: ClassVar[float] = 3_600.0

    def _open(self) -> None:
        place = self._place
        self._redis = place.plain()
        self._seeder = Seeder(self._redis, place.namespace, value_of(PayloadKind.ROWS))
        self._client = CacheClient(place.patient_settings())

    def ask_first(self) -> None:
        number = next(_numbers)
        self._seeder.put([number], soft_in_seconds=self.soft_in_seconds)
        self._params = params_of(number)
        self.ask_again()
        self._client.flush(_SETTLE_SECONDS)

    def ask_again(self) -> None:
        self._client.get(QUERY, self._params)

    def close(self) -> None:
        self._client.close()
        self._redis.close()


class ReadAskedFor(ReadFresh):
    """A read of a stale entry, for whose refresh this process has asked."""

    title = "ours, a read of a stale entry that was asked for"
    note = "by the same process: it asks no more for up to 1 s"
    soft_in_seconds: ClassVar[float] = -1.0


def _friends_of(person_id: int) -> None:
    """Never run: nobody consumes."""


def _app(place: Place) -> PublishingApp:
    app = PublishingApp.to(place.broker_url, _SETTLE_SECONDS)
    # Where `drop_messages` finds what was asked for first.
    app.conf.task_default_queue = refresh_queue(place.namespace)
    return app
