"""The asynchronous client, over the same core as `api_client.client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from api_client.client_base import ClientBase, InvalidationOptions
from api_client.config.durations import Duration, seconds
from api_client.errors import CacheError, CacheUnavailable, RefreshFailed, WaitTimeout
from api_client.explain import Explanation, explain_reads
from api_client.local.entry import NOT_KEPT
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.model import (
    NO_DEFAULT,
    Entry,
    Invalidation,
    NoDefault,
    ReadResult,
    RefreshState,
    TagInvalidation,
)
from api_client.protocol.params import Params
from api_client.read.aio import AsyncReadPath, AsyncWaitRunner
from api_client.read.batch import AnyCall
from api_client.read.requirements import ReadOptions
from api_client.transport.aio_link import AsyncCacheLink
from api_client.transport.scripts import adrive, drive
from api_client.trigger.manual import PUBLISH_BOUND_SECONDS
from api_client.writes import AsyncSession, AsyncTx, begin_transaction

if TYPE_CHECKING:
    # Type checkers know it without an installation; nothing of it is needed at run time.
    from typing_extensions import TypeForm

T = TypeVar("T")
D = TypeVar("D")


class AsyncCacheClient(ClientBase):
    """A reader for asyncio. One per process is enough, since it keeps one connection to Redis per event loop.

    Reads and waits occupy no thread. Publishing, notifications and the in-process tier's link have one background
    thread each, as in `CacheClient`.

    Args:
        settings: default: read from the environment.
        events: metrics hooks; default: none.

    Raises:
        ConfigurationError: a setting is wrong.
    """

    def _set_up_reads(self) -> None:
        settings = self.settings
        self._aio = AsyncCacheLink(
            self._link.routes, settings.redis_timeout_seconds, settings.redis_reply_timeout_seconds
        )
        self._waits = AsyncWaitRunner(self._aio, self._notifications)
        self._reads = AsyncReadPath(self._core, self._aio, self._waits)

    @overload
    async def get(
        self, query: str, params: Params | None = None, *, type: TypeForm[T], **options: Unpack[ReadOptions]
    ) -> T: ...
    @overload
    async def get(
        self, query: str, params: Params | None = None, *, type: TypeForm[T], default: D, **options: Unpack[ReadOptions]
    ) -> T | D: ...
    @overload
    async def get(
        self, query: str, params: Params | None = None, *, default: Any = ..., **options: Unpack[ReadOptions]
    ) -> Any: ...
    async def get(
        self,
        query: str,
        params: Params | None = None,
        *,
        default: Any = NO_DEFAULT,
        type: Any = Any,
        **options: Unpack[ReadOptions],
    ) -> Any:
        """Return the value of a query from the cache, at once while there is one within its grace.

        Arguments and errors are those of `CacheClient.get`. A cancellation does not affect other callers' waits.
        """
        # `key`, inlined, as in `CacheClient.get`.
        key = make_key(self._namespace, query, params, options.get("version", 1) if options else 1)
        if self._tier is not None and not options:
            value = self._core.try_local_fast_path(key, type)
            if value is not NOT_KEPT:
                return value
        try:
            return (await self._read(key, type, options)).value
        except (RefreshFailed, WaitTimeout, CacheUnavailable):
            if isinstance(default, NoDefault):
                raise
            return default

    @overload
    async def get_entry(
        self, query: str, params: Params | None = None, *, type: TypeForm[T], **options: Unpack[ReadOptions]
    ) -> Entry[T]: ...
    @overload
    async def get_entry(
        self, query: str, params: Params | None = None, **options: Unpack[ReadOptions]
    ) -> Entry[Any]: ...
    async def get_entry(
        self, query: str, params: Params | None = None, *, type: Any = Any, **options: Unpack[ReadOptions]
    ) -> Entry[Any]:
        """Return the value with all that the cache knows about it; as `get`, but without a default."""
        return Entry.of(await self._read(self.key(query, params, version=options.get("version", 1)), type, options))

    async def get_many(self, calls: Iterable[AnyCall], **options: Unpack[ReadOptions]) -> list[Entry[Any] | CacheError]:
        """Read many values at once; as `CacheClient.get_many`."""
        batch = self._batch(calls, options)
        await self._reads.read_all(batch)
        return batch.results

    async def invalidate(
        self,
        query: str,
        params: Params | None = None,
        *,
        version: int | None = None,
        hard: bool = False,
        bookmarks: Collection[str] = (),
        replicas: int = 0,
    ) -> Invalidation:
        """Make the value stale, or drop it, in every version; as `CacheClient.invalidate`."""
        key = self.key(query, params, version=1 if version is None else version)
        return await self._invalidate(
            key, all_versions=version is None, hard=hard, bookmarks=bookmarks, replicas=replicas
        )

    async def _invalidate(self, key: CacheKey, **options: Unpack[InvalidationOptions]) -> Invalidation:
        rounds = self._invalidation(key, **options)
        if options["replicas"]:  # WAIT would block all users of the shared connection, so it gets its own, on a thread
            return await asyncio.to_thread(drive, rounds, self._link.run_each)
        return await adrive(rounds, lambda calls: self._aio.run_each(calls, key.query))

    async def invalidate_many(
        self, calls: Iterable[AnyCall], *, hard: bool = False, bookmarks: Collection[str] = ()
    ) -> list[Invalidation | CacheError]:
        """Invalidate many keys in one round trip; as `CacheClient.invalidate_many`."""
        rounds = self._many_invalidations(calls, hard=hard, bookmarks=bookmarks)
        return await adrive(rounds, self._aio.run_each)

    async def invalidate_tags(
        self, tags: Collection[str], *, hard: bool = False, bookmarks: Collection[str] = (), wait: bool = True
    ) -> TagInvalidation:
        """Make every value that depends on one of the tags stale, or drop it; as `CacheClient.invalidate_tags`.

        If the call is cancelled once the invalidation is stored, a worker finishes it.
        """
        rounds = self._tag_walk(tags, hard=hard, bookmarks=bookmarks, wait=wait)
        return await adrive(rounds, self._aio.run_each)

    @asynccontextmanager
    async def writes(
        self,
        session: AsyncSession[AsyncTx],
        *,
        tags: Collection[str] = (),
        keys: Collection[AnyCall] = (),
        hard: bool = False,
    ) -> AsyncIterator[AsyncTx]:
        """Write to the graph, and invalidate dependent values; as `CacheClient.writes`, with an async session.

        A cancellation after the commit is raised once all invalidations are done.
        """
        self._checked_write(tags, keys, hard=hard)
        tx: AsyncTx = await begin_transaction(session, is_async=True)
        try:
            yield tx
            names, calls = self._checked_write(tags, keys, hard=hard)
        except BaseException:
            await tx.close()
            raise

        async def invalidate(bookmarks: Collection[str]) -> None:
            await adrive(self._write_rounds(names, calls, hard=hard, bookmarks=bookmarks), self._aio.run_each)

        async def invalidate_after_commit() -> None:
            await invalidate(tuple((await session.last_bookmarks()).raw_values))

        try:
            await tx.commit()
        except BaseException as error:
            try:
                await _to_its_end(invalidate(()))
            except CacheError as lost:
                error.add_note(f"the cache could not be invalidated: {lost}")
            raise
        await _to_its_end(invalidate_after_commit())

    async def refresh(
        self,
        query: str,
        params: Params | None = None,
        *,
        version: int = 1,
        wait: bool = False,
        timeout: Duration | None = None,
    ) -> RefreshState:
        """Claim and publish a refresh now; as `CacheClient.refresh`."""
        manual = self._begin_refresh(query, params, version, wait, timeout)
        reply = await self._aio.run(manual.claim, manual.key.query)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Exception | None] = loop.create_future()

        def done(error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop has been closed in the meantime
                loop.call_soon_threadsafe(_settle, outcome, error)

        if trigger := manual.on_reply(reply, done):
            self._publisher.submit(trigger)
            try:
                async with asyncio.timeout(PUBLISH_BOUND_SECONDS):
                    error = await outcome
            except TimeoutError as late:
                error = late
            if error is not None:
                raise manual.failed(error) from error
        if manual.has_waiter:
            await self._waits.run(self._wait_after(manual, reply))
            self._core.forget(manual.key)
        return manual.state

    async def explain(self, query: str, params: Params | None = None, *, version: int = 1) -> Explanation:
        """Explain why the value is refreshed now or not; as `CacheClient.explain`."""
        key = self.key(query, params, version=version)
        return self._explanation(key, await self._aio.execute_all(explain_reads(key), key.query))

    async def flush(self, timeout: Duration = 1.0) -> bool:
        """Wait until every trigger of this process is published or dropped; return False if the time ran out."""
        return await asyncio.to_thread(self._publisher.flush, seconds(timeout))

    async def close(self) -> None:
        """Publish pending triggers, for at most a second, and end threads and this event loop's connection.

        Afterwards the client still reads cached values; a miss and `refresh` raise CacheUnavailable.
        """
        self._aio.close()
        await asyncio.to_thread(self._close_parts)

    def close_threads(self) -> None:
        """Close like `close`, but blocking, at the end of a process whose event loop is gone with its connection."""
        self._close_parts()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _read(self, key: CacheKey, type_: Any, options: ReadOptions) -> Awaitable[ReadResult]:
        freshness, timeout_seconds = self._read_requirements(key.query, options)
        return self._reads.read(key, freshness, timeout_seconds, type_)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work``, which has its own time limits, to its end, and then raise any cancellation.

    An error of ``work`` becomes a note of that cancellation.
    """
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        task.result()
        return
    if failure := task.exception():
        cancelled.add_note(f"the cache could not be invalidated: {failure}")
    raise cancelled


def _settle(outcome: asyncio.Future[Exception | None], error: Exception | None) -> None:
    if not outcome.done():
        outcome.set_result(error)
