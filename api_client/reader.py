"""The sync reader: I/O only. What to do next is decided in `read_plan`, which an async reader can drive as well."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, Self, TypeVar, Unpack, overload

from api_client import lease
from api_client.answers import NO_DEFAULT, Entry, Invalidation, NoDefault
from api_client.asked import AskedRecently
from api_client.broker import Broker, CeleryBroker
from api_client.clock import monotonic_seconds
from api_client.durations import Duration, seconds
from api_client.errors import CacheUnavailable, RefreshFailed, TriggerFailed, WaitTimeout
from api_client.events import ReaderEvents, RefreshReason, guarded
from api_client.floors import ReadOptions, bookmarks_of, duration_of, floor_of
from api_client.keys import CacheKey, Params, make_key
from api_client.lease import ClaimStatus
from api_client.link import CacheLink
from api_client.notifications import Notifications
from api_client.publisher import Publisher, Trigger
from api_client.read_core import Answer, ReadCore
from api_client.read_path import ReadPath
from api_client.read_plan import PLAIN, Floor, RefreshState
from api_client.redis_edge import connect
from api_client.settings import ReaderSettings
from api_client.waits import WaitDriver

T = TypeVar("T")
D = TypeVar("D")

PUBLISH_BOUND_SECONDS: Final = 3.0


class CacheClient:
    """A reader. Thread-safe; one a process is enough, and after a fork it comes up anew by itself.

    Args:
        settings: default: read from the environment.
        events: who counts what happens; default: nobody.

    Raises:
        ConfigurationError: a setting is wrong.
    """

    def __init__(self, settings: ReaderSettings | None = None, *, events: ReaderEvents | None = None) -> None:
        self.settings = settings or ReaderSettings.from_env()
        self._events = guarded(events or ReaderEvents(), ReaderEvents)
        self._set_up()
        _clients.add(self)

    @classmethod
    def from_env(cls, *, events: ReaderEvents | None = None) -> CacheClient:
        """Make a client from the environment.

        Raises:
            ConfigurationError: the first variable that is wrong.
        """
        return cls(ReaderSettings.from_env(), events=events)

    def _set_up(self) -> None:
        settings = self.settings
        url, timeout_seconds = settings.redis_url, settings.redis_timeout_seconds
        self._link = CacheLink(url, timeout_seconds)
        asked = AskedRecently(monotonic=monotonic_seconds)
        self._notifications = Notifications(connect(url, timeout_seconds=timeout_seconds))
        self._timeout_default_seconds = settings.wait_timeout_ms / 1000
        self._publisher = Publisher(
            settings, self._link.store, self._make_broker(), asked, self._events, monotonic=monotonic_seconds
        )
        self._driver = WaitDriver(self._link, self._publisher, self._notifications, settings)
        core = ReadCore(settings, self._link.health, self._publisher, asked, self._events, None)
        self._reads = ReadPath(core, self._link, self._publisher, self._driver, self._events)

    def _make_broker(self) -> Broker:
        """Return the way to the workers; `refresher.testing` puts its own here."""
        return CeleryBroker(self.settings.broker_url, self.settings.namespace)

    @overload
    def get(self, query: str, params: Params | None = None, *, type: type[T], **options: Unpack[ReadOptions]) -> T: ...
    @overload
    def get(
        self, query: str, params: Params | None = None, *, type: type[T], default: D, **options: Unpack[ReadOptions]
    ) -> T | D: ...
    @overload
    def get(
        self, query: str, params: Params | None = None, *, default: Any = ..., **options: Unpack[ReadOptions]
    ) -> Any: ...
    def get(
        self,
        query: str,
        params: Params | None = None,
        *,
        default: Any = NO_DEFAULT,
        type: Any = Any,
        **options: Unpack[ReadOptions],
    ) -> Any:
        """Return the value of a query, from the cache: at once while there is one within its grace.

        Args:
            query: the name under which a worker has registered it.
            params: names and JSON-like values; at most 16 KiB.
            version: the schema version that this reader understands.
            max_age: the value's load began at most this long ago, or after the call.
            fresh: only a value whose load began after this call.
            min_generation: only a value read after that invalidation (`Invalidation.generation`).
            min_bookmarks: only a value whose load was given these bookmarks of the graph.
            timeout: how long to wait where a wait is needed; default STAMPEDE_WAIT_TIMEOUT_MS.
            default: returned instead of RefreshFailed, WaitTimeout and CacheUnavailable.
            type: what to decode into (a dataclass, msgspec.Struct, TypedDict, ``list[int]`` …).

        Raises:
            InvalidQuery: the call itself is wrong; nothing was sent.
            RefreshFailed, UnknownQuery, WaitTimeout, CacheUnavailable: no value; see `api_client.errors`.
            DecodeError: the value does not fit ``type``.
        """
        try:
            return self._read(query, params, type, options)[0]
        except (RefreshFailed, WaitTimeout, CacheUnavailable):
            if isinstance(default, NoDefault):
                raise
            return default

    def get_entry(
        self, query: str, params: Params | None = None, *, type: Any = Any, **options: Unpack[ReadOptions]
    ) -> Entry[Any]:
        """Return the value with all that the cache knows of it. Arguments and errors as for `get`, but no default."""
        return Entry.of(*self._read(query, params, type, options))

    def key(self, query: str, params: Params | None = None, *, version: int = 1) -> CacheKey:
        """Return the key of (query, params, version): what the cache calls its entry and its lease record."""
        return make_key(self.settings.namespace, query, params, version)

    def invalidate(
        self,
        query: str,
        params: Params | None = None,
        *,
        version: int = 1,
        hard: bool = False,
        bookmarks: Collection[str] = (),
        replicas: int = 0,
    ) -> Invalidation:
        """Make the value stale from now on, or gone.

        Once this has returned, no value whose load began before it is stored as fresh, and after a hard one none is
        stored at all.

        Args:
            query, params, version: as for `get`.
            hard: drop the value too: the next read waits.
            bookmarks: of the transaction that changed the graph; the next load reads after them. Needed where the
                worker may read from a follower.
            replicas: wait until so many replicas of Redis have it (at most CACHE_REDIS_TIMEOUT).

        Raises:
            InvalidQuery, CacheUnavailable.
        """
        key = self.key(query, params, version=version)
        call = lease.invalidate(
            key,
            hard=hard,
            bookmarks=bookmarks_of(query, bookmarks),
            retention_seconds=self.settings.record_retention_seconds,
        )
        if replicas <= 0:
            return Invalidation(self._link.run(call, query), None)
        generation, confirmed = self._link.run_and_wait(
            call, query, replicas=replicas, timeout_seconds=self.settings.redis_timeout_seconds / 2
        )
        return Invalidation(generation, confirmed >= replicas)

    def refresh(
        self,
        query: str,
        params: Params | None = None,
        *,
        version: int = 1,
        wait: bool = False,
        timeout: Duration | None = None,
    ) -> RefreshState:
        """Claim and publish a refresh now, also of a fresh value or one that cools after a failure.

        Returns TRIGGERED, or SUPPRESSED where a refresh was under way already.

        Args:
            query, params, version, timeout: as for `get`.
            wait: return only when a value loaded after this call is there.

        Raises:
            InvalidQuery, CacheUnavailable.
            TriggerFailed: it could not be published within 3 s; a claim that is not published is taken back.
            RefreshFailed, WaitTimeout: with ``wait``, as for `get`.
        """
        key = self.key(query, params, version=version)
        timeout_seconds = self._timeout_seconds(query, timeout)
        claim_id = uuid.uuid4().hex
        reply = self._link.run(
            lease.claim(
                key, claim_id=claim_id, seen_token=None, force=True,
                queue_ttl_seconds=self.settings.queue_ttl_seconds,
                retention_seconds=self.settings.record_retention_seconds,
            ),
            query,
        )  # fmt: skip
        if reply.status is ClaimStatus.CLAIMED:
            self._publish_now(
                Trigger(key, RefreshReason.MANUAL, claim_number=reply.number, claim_id=claim_id, someone_waits=wait)
            )
        if wait:
            self._driver.wait(key, Floor(fresh=True), 0, timeout_seconds, asked=reply)
        return RefreshState.TRIGGERED if reply.status is ClaimStatus.CLAIMED else RefreshState.SUPPRESSED

    def flush(self, timeout: Duration = 1.0) -> bool:
        """Wait until every trigger of this process has been published or dropped; False when the time ran out."""
        return self._publisher.flush(seconds(timeout))

    def close(self) -> None:
        """Publish what is left, for at most a second, and end threads and connections."""
        self._publisher.close()
        self._notifications.close()
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, query: str, params: Params | None, type_: Any, options: ReadOptions) -> Answer:
        key = make_key(self.settings.namespace, query, params, options.get("version", 1))
        if options:
            floor, timeout_seconds = floor_of(query, options), self._timeout_seconds(query, options.get("timeout"))
        else:
            floor, timeout_seconds = PLAIN, self._timeout_default_seconds
        try:
            return self._reads.read(key, floor, timeout_seconds, type_)
        except CacheUnavailable:
            self._events.unavailable(query)
            raise

    def _publish_now(self, trigger: Trigger) -> None:
        done: Future[None] = Future()
        self._publisher.submit(replace(trigger, done=done))
        try:
            done.result(PUBLISH_BOUND_SECONDS)
        except Exception as error:
            query = trigger.key.query
            raise TriggerFailed(f"the refresh of {query!r} could not be published: {error}", query=query) from error

    def _timeout_seconds(self, query: str, timeout: Duration | None) -> float:
        if timeout is None:
            return self._timeout_default_seconds
        return duration_of(query, "timeout", timeout)


_clients: weakref.WeakSet[CacheClient] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Threads, locks and connections of the parent are of no use in the child.
    for client in list(_clients):
        client._set_up()  # noqa: SLF001 - this module's own class


os.register_at_fork(after_in_child=_after_fork_in_child)
