"""Common base of both clients: their parts, remade in a forked child, and the shared part of their calls."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeAlias, TypedDict, TypeVar

from redis.exceptions import RedisError

from api_client.config.durations import Duration
from api_client.config.settings import ReaderSettings
from api_client.config.spelling import names_keywords
from api_client.errors import CacheError, InvalidQuery, twin
from api_client.explain import Explanation, explanation
from api_client.local.tracking import open_local_tier
from api_client.observe.events import ReaderEvents
from api_client.observe.setup import build_events
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.lease import Call, ClaimReply
from api_client.protocol.live_versions import KnownVersions, VersionedInvalidation, invalidate_together, read_versions
from api_client.protocol.model import Invalidation, TagInvalidation
from api_client.protocol.params import Params
from api_client.protocol.tags import TagWalk, check_tags
from api_client.read.batch import MAX_BATCH, AnyCall, Batch, numbered, parse_call
from api_client.read.core import ReadCore
from api_client.read.evaluate import ANY, Freshness
from api_client.read.requirements import (
    ReadOptions,
    check_replicas,
    parse_bookmarks,
    parse_duration,
    parse_flag,
    parse_freshness,
)
from api_client.read.wait import Wait
from api_client.transport.link import CacheLink
from api_client.transport.pubsub import CONFIRM_SECONDS, Notifications
from api_client.transport.redis_py import connect_to_any
from api_client.transport.scripts import all_answered, none_failed, read_scripts
from api_client.transport.wire import is_wrong_type
from api_client.trigger.broker import Broker, CeleryBroker
from api_client.trigger.claim_and_publish import BatchPublisher
from api_client.trigger.manual import ManualRefresh
from api_client.trigger.publisher import Publisher
from api_client.trigger.suppression import TriggerSuppressor

T = TypeVar("T")
Rounds: TypeAlias = Generator[Sequence[Call[Any]], Sequence[Any], T]
"""Yields the calls of one round trip at a time, is sent their replies, and returns the result."""


class InvalidationOptions(TypedDict):
    """The options of an invalidation, and whether it applies to all versions."""

    all_versions: bool
    hard: bool
    bookmarks: Collection[str]
    replicas: int


class ClientBase:
    """The parts of a client, remade in a forked child, and the shared part of both clients' calls.

    Args:
        settings: default: read from the environment.
        events: metrics hooks; default: none. With CACHE_METRICS a registry is added, with CACHE_OTEL OpenTelemetry.

    Raises:
        ConfigurationError: a setting is wrong.
    """

    @names_keywords(ReaderSettings)
    def __init__(self, settings: ReaderSettings | None = None, *, events: ReaderEvents | None = None) -> None:
        self.settings: ReaderSettings = ReaderSettings.given_or_from_env(settings)
        self._events = build_events(events, self.settings)
        self._namespace = self.settings.namespace
        self._default_timeout_seconds = self.settings.wait_timeout_ms / 1000
        self._set_up()
        _clients.add(self)

    @classmethod
    @names_keywords()
    def from_env(cls, *, events: ReaderEvents | None = None) -> Self:
        """Make a client from the environment.

        Raises:
            ConfigurationError: a variable is wrong; names the first one.
        """
        return cls(ReaderSettings.from_env(), events=events)

    def key(self, query: str, params: Params | None = None, *, version: int = 1) -> CacheKey:
        """Return the key of (query, params, version): the names of its entry and its lease record."""
        return make_key(self._namespace, query, params, version)

    def _set_up(self) -> None:
        read_scripts()
        settings = self.settings
        url, timeout_seconds = settings.redis_url, settings.redis_timeout_seconds
        self._link = CacheLink(url, timeout_seconds, settings.redis_reply_timeout_seconds)
        master = self._link.routes.master
        self._notifications = Notifications(
            connect_to_any(url, timeout_seconds=timeout_seconds, known=master),
            confirm_seconds=max(CONFIRM_SECONDS, timeout_seconds),
        )
        master.on_change(self._notifications.invalidate_connections)
        self._suppressor = TriggerSuppressor(monotonic=monotonic_seconds)
        self._publication = BatchPublisher(
            settings, self._link, self._make_broker(), self._suppressor, self._events, monotonic=monotonic_seconds
        )
        self._publisher = Publisher(self._publication, self._events.spans)
        self._tier, self._tracking = open_local_tier(settings, master)
        self._core = ReadCore(
            settings, self._link, self._publisher, self._suppressor, self._events, self._tier, self._tracking
        )
        self._known_versions = KnownVersions()
        self._set_up_reads()

    def _set_up_reads(self) -> None:
        """Make the parts that differ between the clients."""
        raise NotImplementedError

    def _make_broker(self) -> Broker:
        """Return the broker to publish to; `refresher.testing` overrides it."""
        return CeleryBroker(self.settings.broker_url, self.settings.namespace)

    def _read_requirements(
        self, query: str, options: ReadOptions, *, of_batch: bool = False
    ) -> tuple[Freshness, float]:
        """Return a read's requirements on an entry, and its timeout in seconds."""
        if not options:
            return ANY, self._default_timeout_seconds
        return parse_freshness(query, options, of_batch=of_batch), self._timeout_seconds(query, options.get("timeout"))

    def _timeout_seconds(self, query: str, timeout: Duration | None) -> float:
        return self._default_timeout_seconds if timeout is None else parse_duration(query, "timeout", timeout)

    def _invalidation(
        self, key: CacheKey, *, all_versions: bool, hard: bool, bookmarks: Collection[str], replicas: int
    ) -> Rounds[Invalidation]:
        """Check the arguments of an invalidation, and return its rounds; with ``replicas`` it blocks and has none.

        At its end this process drops its own entries of the keys, even if the reply was lost, as it may have been done.
        """
        invalidation = self._versioned(
            key,
            self._known_versions if all_versions else None,
            hard=parse_flag(key.query, "hard", hard),
            bookmarks=parse_bookmarks(key.query, bookmarks),
        )
        check_replicas(key.query, replicas)
        with self._forgetting(invalidation):
            if replicas:
                return self._invalidate_on_replicas(key, invalidation, replicas, all_versions=all_versions)
            generations = yield from all_answered(invalidation.rounds())
            return Invalidation(generations[key.version], None, generations)

    def _versioned(
        self, key: CacheKey, known: KnownVersions | None, *, hard: bool, bookmarks: Sequence[str]
    ) -> VersionedInvalidation:
        retention_seconds = self.settings.record_retention_seconds
        return VersionedInvalidation(key, known, hard=hard, bookmarks=bookmarks, retention_seconds=retention_seconds)

    @contextmanager
    def _forgetting(self, *invalidations: VersionedInvalidation) -> Iterator[None]:
        try:
            yield
        finally:
            for invalidation in invalidations:
                for key in invalidation.keys:
                    self._core.forget(key)

    def _invalidate_on_replicas(
        self, key: CacheKey, invalidation: VersionedInvalidation, replicas: int, *, all_versions: bool
    ) -> Invalidation:
        """Invalidate one version after another, and wait for the replicas of each."""
        query, half = key.query, self.settings.redis_timeout_seconds / 2
        registered = self._link.run(read_versions(self._namespace, query), query) if all_versions else frozenset()
        replies = {
            version: self._link.run_and_wait(invalidation.call(version), query, replicas=replicas, timeout_seconds=half)
            for version in sorted({key.version, *registered})
        }
        generations = {version: generation for version, (generation, _) in replies.items()}
        confirmed = min(count for _, count in replies.values())
        return Invalidation(generations[key.version], confirmed >= replicas, generations)

    def _many_invalidations(
        self, calls: Iterable[AnyCall], *, hard: bool, bookmarks: Collection[str]
    ) -> Rounds[list[Invalidation | CacheError]]:
        """Check the arguments of invalidations, and return their rounds; at the end this process drops its entries.

        A bad item does not affect the others.
        """
        about = "invalidate_many"
        is_hard, marks = parse_flag(about, "hard", hard), parse_bookmarks(about, bookmarks)
        results: list[Invalidation | CacheError | None] = []
        begun: dict[int, tuple[CacheKey, VersionedInvalidation]] = {}
        for place, call in numbered(calls, about):
            results.append(None)
            try:
                query, params, version, _ = parse_call(call, 1)
                key = self.key(query, params, version=version)
            except InvalidQuery as error:
                results[place] = error
            else:
                begun[place] = key, self._versioned(key, self._known_versions, hard=is_hard, bookmarks=marks)
        with self._forgetting(*(invalidation for _, invalidation in begun.values())):
            found = yield from invalidate_together([invalidation.rounds() for _, invalidation in begun.values()])
        for (place, (key, _)), generations in zip(begun.items(), found, strict=True):
            failed = isinstance(generations, CacheError)
            results[place] = twin(generations) if failed else Invalidation(generations[key.version], None, generations)
        return [result for result in results if result is not None]

    def _checked_write(
        self, tags: Collection[str], keys: Collection[AnyCall], *, hard: bool
    ) -> tuple[tuple[str, ...], tuple[AnyCall, ...]]:
        """Return copies of a write's tags and keys, all checked, so that nothing can be wrong after the commit."""
        for name, given in (("tags", tags), ("keys", keys)):
            if not isinstance(given, Collection):  # the first check would use up an iterator
                raise InvalidQuery(f"{name} of type {type(given).__name__}: expected a list or another collection")
        parse_flag("writes", "hard", hard)
        if len(keys) > MAX_BATCH:
            raise InvalidQuery(f"more than {MAX_BATCH} keys, which is the most allowed")
        calls = tuple(keys)
        for call in calls:
            query, params, version, _ = parse_call(call, 1)
            self.key(query, params, version=version)
        return _checked_tags(tags), calls

    def _write_rounds(
        self, tags: Collection[str], keys: Iterable[AnyCall], *, hard: bool, bookmarks: Collection[str]
    ) -> Rounds[None]:
        """Return the rounds of the invalidations after a write; the first failure is raised at the end.

        Bookmarks that can't be kept are such a failure: the write is done, and its values are invalidated without them.
        """
        marks: tuple[str, ...] = ()
        failed: list[CacheError] = []
        try:
            marks = parse_bookmarks("writes", bookmarks)
        except InvalidQuery as error:
            failed.append(error)
        done = yield from self._many_invalidations(keys, hard=hard, bookmarks=marks)
        yield from self._tag_walk(tags, hard=hard, bookmarks=marks, wait=True)
        none_failed([*done, *failed])

    def _tag_walk(
        self, tags: Collection[str], *, hard: bool, bookmarks: Collection[str], wait: bool
    ) -> Rounds[TagInvalidation]:
        """Check the arguments of an invalidation of tags, and return its rounds."""
        about = "invalidate_tags"
        names = _checked_tags(tags)
        is_hard, waits = parse_flag(about, "hard", hard), parse_flag(about, "wait", wait)
        marks, retention_seconds = parse_bookmarks(about, bookmarks), self.settings.record_retention_seconds
        walk = TagWalk(self._namespace, retention_seconds=retention_seconds, touched=self._core.forget)
        began = monotonic_seconds()
        entries = yield from all_answered(walk.invalidate(names, hard=is_hard, bookmarks=marks, wait=waits))
        if waits:
            self._events.tags_invalidated(hard=is_hard, entries=entries, seconds=monotonic_seconds() - began)
        return TagInvalidation(entries, waits)

    def _begin_refresh(
        self, query: str, params: Params | None, version: int, wait: object, timeout: Duration | None
    ) -> ManualRefresh:
        """Check the arguments of a refresh, and return it.

        Raises:
            InvalidQuery: an argument is wrong.
            CacheUnavailable: the client is closed.
        """
        key = self.key(query, params, version=version)
        timeout_seconds, waits = self._timeout_seconds(key.query, timeout), parse_flag(key.query, "wait", wait)
        if refusal := self._publisher.refusal(key.query):
            raise refusal
        return ManualRefresh(key, self.settings, has_waiter=waits, timeout_seconds=timeout_seconds)

    def _wait_after(self, manual: ManualRefresh, claimed: ClaimReply) -> Wait:
        """Return the wait for the value of a claimed refresh."""
        return self._core.begin_wait(manual.key, Freshness(fresh=True), 0, manual.timeout_seconds, claimed)

    def _batch(self, calls: Iterable[AnyCall], options: ReadOptions) -> Batch:
        freshness, timeout_seconds = self._read_requirements("get_many", options, of_batch=True)

        def of_version(version: int) -> Freshness:
            has_numbers_by_version = not isinstance(options.get("min_generation", 0), int)
            return parse_freshness("get_many", {**options, "version": version}) if has_numbers_by_version else freshness

        return Batch(self._core, self._namespace, calls, of_version, timeout_seconds, options.get("version", 1))

    def _explanation(self, key: CacheKey, replies: Sequence[object]) -> Explanation:
        for reply in replies:
            if isinstance(reply, RedisError) and not is_wrong_type(reply):
                raise self._link.routes.health_of_owner(key.entry).failure(reply, key.query)
        return explanation(
            key,
            replies,
            suppressed_seconds=self._suppressor.left_seconds(key.entry),
            queue_length=self._publication.known_queue_length,
        )

    def _close_parts(self) -> None:
        with ExitStack() as parts:  # in reverse order, whatever any of them raises
            parts.callback(self._link.close)
            if self._tracking is not None:
                parts.callback(self._tracking.close)
            parts.callback(self._notifications.close)
            parts.callback(self._publisher.close)


def _checked_tags(tags: Collection[str]) -> tuple[str, ...]:
    try:
        return check_tags(tags)
    except ValueError as error:
        raise InvalidQuery(str(error)) from None


_clients: weakref.WeakSet[ClientBase] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # The parent's threads, locks and connections are useless in the child.
    for client in list(_clients):
        client._set_up()  # noqa: SLF001 - this module's own class


os.register_at_fork(after_in_child=_after_fork_in_child)
