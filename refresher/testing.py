"""The cache for an application's tests: without worker, broker or graph, and with a controllable clock.

```python
from api_client import get_cached
from refresher.testing import InlineCache

def test_profile_page() -> None:
    with InlineCache() as cache:
        cache.answer("friends_of", lambda person_id: ["Ada", "Grace"], ttl="5m", grace="1h")
        assert get_cached("friends_of", {"person_id": 42}) == ["Ada", "Grace"]

        cache.answer("friends_of", lambda person_id: ["Ada"], ttl="5m", grace="1h")
        cache.advance("6m")
        assert get_cached("friends_of", {"person_id": 42}) == ["Ada", "Grace"]  # stale, at once
        assert get_cached("friends_of", {"person_id": 42}) == ["Ada"]  # refreshed meanwhile
```

An async test does the same with ``async with InlineCache() as cache`` and ``await aget_cached(…)``, on the same cache.

Everything but the broker and the graph is real: the reader, the scripts on a real Redis (an embedded one, started with
the first `InlineCache`, which needs the extra ``testing`` or a ``redis-server`` on PATH), and the refresh flow, which
is finished before the read returns: on the reader's thread, or the publisher's if the read was served at once. A loader
blocks no event loop, and may read other queries.
"""

from __future__ import annotations

import atexit
import inspect
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final, Self, TypeAlias, Unpack, cast

import msgspec

from api_client import default as default_client
from api_client.aio import AsyncCacheClient
from api_client.client import CacheClient
from api_client.config.durations import Duration, seconds
from api_client.config.settings import ReaderSettings
from api_client.config.spelling import names_keywords
from api_client.errors import CacheError, RefreshFailed, UnknownQuery
from api_client.protocol import entry
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.messages import RefreshItem
from api_client.protocol.model import Entry, ReadResult
from api_client.protocol.params import plain
from api_client.read import in_place
from api_client.read.aio import AsyncReadPath, AsyncWaitRunner
from api_client.read.batch import AnyCall
from api_client.read.requirements import ReadOptions
from api_client.read.sync import ReadPath, SyncWaitRunner
from api_client.read.wait import Wait
from api_client.transport.aio_link import AsyncCacheLink
from api_client.transport.link import CacheLink
from api_client.transport.pubsub import Notifications
from api_client.transport.redis_py import nodes_of
from api_client.trigger.broker import Broker
from refresher.embedded import RedisServer
from refresher.errors import LoadFailed
from refresher.flow import nesting
from refresher.flow.dead_letters import DeadLetter
from refresher.flow.outcome import Outcome
from refresher.flow.ports import RefreshDeps, WorkerEvents
from refresher.flow.refresh import Refresher
from refresher.graph import values
from refresher.graph.call import call_loader
from refresher.graph.failures import classify_error
from refresher.queries import Loaded, Query, Registry, query, registry
from refresher.results import Previous
from refresher.settings import WorkerSettings
from refresher.worker.in_place import InPlace, in_place_deps
from refresher.worker.redis_link import RetryingLink
from refresher.worker.tag_upkeep import TagUpkeep
from refresher.worker.version_registration import registration_of

_ANY: Final = inspect.Parameter("params", inspect.Parameter.VAR_KEYWORD)
_RECORD_TIMES: Final = ("since", "until", "limit", "claimed_at", "published", "failures_until")
_server: RedisServer | None = None

Explain: TypeAlias = Callable[[CacheKey, RefreshFailed], RefreshFailed]


class InlineCache:
    """A cache for one test, in its own namespace, which is deleted on exit.

    Within it, `get_cached` and `aget_cached` read from it. A `RefreshFailed` has the failure's text, and the loader's
    exception as its ``__cause__``.

    Args:
        redis_url: the Redis to use; default: an embedded one, shared by the whole process.
        tx: the first argument of loaders; default None.
        settings: the worker's policy; default: no early refresh, so that nothing depends on chance.

    Attributes:
        client: the reader of `get_cached`.
        async_client: the reader of `aget_cached`.
        outcomes: the outcomes of the refreshes, in order.
    """

    @names_keywords(WorkerSettings)
    def __init__(self, *, redis_url: str | None = None, tx: Any = None, settings: WorkerSettings | None = None) -> None:
        url = redis_url or _embedded_redis_url()
        namespace = f"test-{uuid.uuid4().hex[:12]}"
        policy = settings or WorkerSettings(xfetch_enabled=False)
        self._link = RetryingLink(url)
        self._redis = self._link.client
        self._own = Registry()
        self._tx, self._max_value_bytes = tx, policy.max_value_bytes
        self.outcomes: list[Outcome] = []
        self._failures: dict[str, tuple[str, BaseException | None]] = {}
        self._thread = threading.local()
        policy = msgspec.structs.replace(policy, redis_url=url, namespace=namespace)
        self._upkeep = TagUpkeep(policy)
        deps = self._deps(policy)
        self._refresher = Refresher(policy, deps)
        # Published items are loaded at once, so a load ended by Ctrl-C would be handed back to itself.
        nested = self._refresher.with_deps(replace(in_place_deps(deps), hands_back=lambda _: False))
        self._cache = url, namespace
        in_place.use(
            *self._cache,
            _InlineLoads(cast("Registry", self), lambda: nested, lambda item, _: self._refresh(item), self._keep),
        )
        # Nothing here is slow, but a debugger may stop in a loader, which must not fail a test.
        reader = ReaderSettings(redis_url=url, namespace=namespace, redis_timeout_seconds=5.0, wait_timeout_ms=60_000)
        self.client: CacheClient = _InlineClient(reader, self._refresh, self._explain)
        self.async_client: AsyncCacheClient = _AsyncInlineClient(reader, self._refresh, self._explain)
        self._before: tuple[CacheClient | None, AsyncCacheClient | None] = None, None

    def _deps(self, policy: WorkerSettings) -> RefreshDeps:
        store = self._link.store
        return RefreshDeps(
            lease_steps=store,
            origin=self,
            encode=values.encode,
            registry=cast("Registry", self),
            keep_leases=lambda _: nullcontext(),
            publish=self._refresh,
            write_dead_letter=self._keep_failure,
            monotonic=monotonic_seconds,
            sleep=lambda _: None,
            events=WorkerEvents(),
            failure_of=classify_error,
            register=lambda query: store.run(registration_of(query, policy)),
        )

    def answer(
        self,
        name: str,
        loader: Callable[..., Any] | object,
        *,
        ttl: Duration = "1h",
        grace: Duration | None = None,
        version: int = 1,
        **options: Any,
    ) -> None:
        """Set a query's loader from now on.

        Args:
            name: the query's name.
            loader: called with the params, failing the load if it raises. Anything that is not callable is the value
                itself.
            ttl: the time for which a value is fresh.
            grace: the further time for which it may be served; default: as long as ttl.
            version: the query's version.
            options: as for `refresher.query`. Even with ``batch`` the loader is called with one call's params.
        """
        name, version = plain(name), plain(version)

        options.pop("batch", None)

        def load(_: object, /, **params: Any) -> Any:
            return loader(**params) if callable(loader) else loader

        load.__qualname__ = f"answer({name!r}, {version})"
        load.__signature__ = _signature(loader)  # type: ignore[attr-defined] # for the check of params
        load.__wrapped__ = loader  # type: ignore[attr-defined] # for locating failures
        query(name, ttl=ttl, grace=ttl if grace is None else grace, version=version, into=self._own, **options)(load)

    def advance(self, duration: Duration) -> None:
        """Let time pass: make everything in the cache older by ``duration``, without waiting.

        An invalidation of tags with ``wait=False`` is finished first, as by a worker.
        """
        self._upkeep.finish_pending(self._link)
        by_us = int(seconds(duration) * 1e6)
        for key in self._keys():
            self._age(key, by_us)
        for client in (self.client, self.async_client):
            # Each client suppresses triggers by its own clock for a second, and would not notice the change of time.
            client._suppressor.forget()  # noqa: SLF001 - nobody else lets time pass

    def __enter__(self) -> Self:
        self._before = (
            default_client.use_as_default(self.client),
            default_client.use_as_async_default(self.async_client),
        )
        return self

    def __exit__(self, *_: object) -> None:
        before, async_before = self._before
        default_client.use_as_default(before)
        default_client.use_as_async_default(async_before)
        self.client.close()
        self.async_client.close_threads()
        in_place.use(*self._cache, None)
        for key in self._keys():
            self._redis.unlink(key)
        self._link.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        await self.async_client.close()
        self.__exit__()

    def find(self, name: str, version: int) -> Query | None:
        """Return the query set by `answer`, or the application's."""
        return self._own.find(name, version) or registry.find(name, version)

    def load(
        self,
        query: Query,
        calls: Sequence[Mapping[str, Any]],
        previous: Sequence[Previous | None],
        bookmarks: Sequence[str],
        timeout_seconds: float,
    ) -> list[Loaded]:
        """Run a loader, for the refresh flow; tests need not call this."""
        try:
            return list(map(Loaded, call_loader(query, self._tx, calls, previous, self._max_value_bytes)))
        except LoadFailed:
            raise
        except BaseException as error:
            self._thread.raised = error
            raise classify_error(error) from error

    def _refresh(self, item: RefreshItem) -> None:
        again: RefreshItem | None = item
        while again is not None:
            outcome = self._refresher.refresh(again)
            self.outcomes.append(outcome)
            again = outcome.again

    def _keep(self, _items: object, outcomes: Sequence[Outcome], _seconds: float) -> None:
        self.outcomes += outcomes

    def _explain(self, key: CacheKey, failed: RefreshFailed) -> RefreshFailed:
        """Return a failure with its text, and the loader's exception as its cause."""
        if isinstance(failed, UnknownQuery) or key.digest.hex() not in self._failures:
            return failed
        text, raised = self._failures[key.digest.hex()]
        explained = RefreshFailed(failed.query, failed.kind, failed.attempts, failed.retry_after_seconds, text)
        explained.__cause__ = raised
        return explained

    def _keep_failure(self, letter: DeadLetter, _replaced_token: int) -> None:
        raised, self._thread.raised = getattr(self._thread, "raised", None), None
        self._failures[letter.digest] = letter.message or "its query is sensitive", raised

    def _keys(self) -> list[Any]:
        nodes, pattern = nodes_of(self._redis), f"{self.client.settings.namespace}:*"
        return [key for node in nodes for key in list(node.scan_iter(match=pattern, count=1_000))]

    def _age(self, key: bytes, by_us: int) -> None:
        left_ms = self._redis.pttl(key)
        if 0 < left_ms <= by_us // 1000:
            self._redis.delete(key)
            return
        if self._redis.type(key) == b"string":
            raw = cast("bytes", self._redis.get(key))
            self._redis.set(key, entry.with_times_shifted(raw, -by_us), keepttl=True)
        elif self._redis.type(key) == b"hash":
            times = cast("list[bytes | None]", self._redis.hmget(key, list(_RECORD_TIMES)))
            moved = {name: int(at) - by_us for name, at in zip(_RECORD_TIMES, times, strict=True) if at is not None}
            if moved:
                self._redis.hset(key, mapping=cast("Any", moved))
        if left_ms > 0:
            self._redis.pexpire(key, left_ms - by_us // 1000)


def _signature(loader: Callable[..., Any] | object) -> inspect.Signature:
    """Return the signature of a query's loader with the params of ``loader``, or with any params for a value."""
    tx = inspect.Parameter("_of_the_query", inspect.Parameter.POSITIONAL_ONLY)
    try:
        params = list(inspect.signature(loader).parameters.values()) if callable(loader) else [_ANY]
    except (TypeError, ValueError):  # a builtin without a signature
        params = [_ANY]
    return inspect.Signature([tx, *params])


class _InlineLoads(InPlace):
    """Loads in place, on the reading thread, of any query, even one that nobody has registered."""

    def has(self, key: CacheKey) -> bool:
        return True


class _InlineBroker:
    """Runs published refreshes, for which no read waits, on the publisher's thread."""

    def __init__(self, refresh: Callable[[RefreshItem], None]) -> None:
        self._refresh = refresh

    def publish(self, items: Sequence[RefreshItem], *, has_waiter: bool) -> None:
        for item in items:
            self._refresh(item)

    def publish_each(self, contents: Sequence[Sequence[RefreshItem]], *, has_waiter: bool) -> list[Exception | None]:
        for items in contents:
            self.publish(items, has_waiter=has_waiter)
        return [None] * len(contents)

    def waiting(self, *, has_waiter: bool = False) -> int:
        return 0

    def close(self) -> None:
        pass


class _InlineWaits(SyncWaitRunner):
    """Waits that explain failures."""

    def __init__(self, link: CacheLink, notifications: Notifications, explain: Explain) -> None:
        super().__init__(link, notifications)
        self._explain = explain

    def run_all(
        self, waits: Sequence[Wait], read_begins: Callable[[], None] = lambda: None
    ) -> list[bytes | CacheError]:
        return [
            self._explain(wait.key, result) if isinstance(result, RefreshFailed) else result
            for wait, result in zip(waits, super().run_all(waits, read_begins), strict=True)
        ]


class _AsyncInlineWaits(AsyncWaitRunner):
    """Waits on an event loop that explain failures."""

    def __init__(
        self,
        link: AsyncCacheLink,
        notifications: Notifications,
        explain: Callable[[CacheKey, RefreshFailed], Awaitable[RefreshFailed]],
    ) -> None:
        super().__init__(link, notifications)
        self._explain = explain

    async def run(self, wait: Wait, read_begins: Callable[[], None] = lambda: None) -> bytes:
        try:
            return await super().run(wait, read_begins)
        except RefreshFailed as failed:
            explained = await self._explain(wait.key, failed)
            raise explained from explained.__cause__


class _InlineClient(CacheClient):
    """A reader whose triggers are finished when its read returns."""

    def __init__(self, settings: ReaderSettings, refresh: Callable[[RefreshItem], None], explain: Explain) -> None:
        self._refresh_inline, self._explain = refresh, explain
        super().__init__(settings)

    def _make_broker(self) -> Broker:
        return _InlineBroker(self._refresh_inline)

    def _set_up_reads(self) -> None:
        super()._set_up_reads()
        self._waits = _InlineWaits(self._link, self._notifications, self._explained)
        self._reads = ReadPath(self._core, self._link, self._waits)

    def _explained(self, key: CacheKey, failed: RefreshFailed) -> RefreshFailed:
        self._finish_triggers()  # waiters learn of a failure before it is kept
        return self._explain(key, failed)

    def get_many(self, calls: Iterable[AnyCall], **options: Unpack[ReadOptions]) -> list[Entry[Any] | CacheError]:
        try:
            return super().get_many(calls, **options)
        finally:
            self._finish_triggers()

    def _read(self, key: CacheKey, type_: Any, options: ReadOptions) -> ReadResult:
        try:
            return super()._read(key, type_, options)
        finally:
            self._finish_triggers()

    def _finish_triggers(self) -> None:
        if not nesting.is_in_load():  # that load may be one of the triggers
            self.flush("1m")


class _AsyncInlineClient(AsyncCacheClient):
    """An asynchronous reader whose triggers are finished when its read returns."""

    def __init__(self, settings: ReaderSettings, refresh: Callable[[RefreshItem], None], explain: Explain) -> None:
        self._refresh_inline, self._explain = refresh, explain
        super().__init__(settings)

    def _make_broker(self) -> Broker:
        return _InlineBroker(self._refresh_inline)

    def _set_up_reads(self) -> None:
        super()._set_up_reads()
        self._waits = _AsyncInlineWaits(self._aio, self._notifications, self._explained)
        self._reads = AsyncReadPath(self._core, self._aio, self._waits)

    async def _explained(self, key: CacheKey, failed: RefreshFailed) -> RefreshFailed:
        await self._finish_triggers()
        return self._explain(key, failed)

    async def get_many(self, calls: Iterable[AnyCall], **options: Unpack[ReadOptions]) -> list[Entry[Any] | CacheError]:
        try:
            return await super().get_many(calls, **options)
        finally:
            await self._finish_triggers()

    async def _read(self, key: CacheKey, type_: Any, options: ReadOptions) -> ReadResult:
        try:
            return await super()._read(key, type_, options)
        finally:
            await self._finish_triggers()

    async def _finish_triggers(self) -> None:
        if not nesting.is_in_load():
            await self.flush("1m")


def _embedded_redis_url() -> str:
    global _server  # noqa: PLW0603 - one a process is enough
    if _server is None:
        _server = RedisServer.start()
        atexit.register(_server.stop)
    return _server.url(0)
