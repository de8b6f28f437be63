"""The synchronous client."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
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
from api_client.read.batch import AnyCall
from api_client.read.requirements import ReadOptions
from api_client.read.sync import ReadPath, SyncWaitRunner
from api_client.threads import Waker
from api_client.transport.scripts import drive
from api_client.trigger.manual import PUBLISH_BOUND_SECONDS
from api_client.writes import Session, Tx, begin_transaction

if TYPE_CHECKING:
    # Type checkers know it without an installation; nothing of it is needed at run time.
    from typing_extensions import TypeForm

T = TypeVar("T")
D = TypeVar("D")


class CacheClient(ClientBase):
    """A reader. Thread-safe; one per process is enough. After a fork it starts anew in the child by itself.

    Args:
        settings: default: read from the environment.
        events: metrics hooks; default: none.

    Raises:
        ConfigurationError: a setting is wrong.
    """

    def _set_up_reads(self) -> None:
        self._waits = SyncWaitRunner(self._link, self._notifications)
        self._reads = ReadPath(self._core, self._link, self._waits)

    @overload
    def get(
        self, query: str, params: Params | None = None, *, type: TypeForm[T], **options: Unpack[ReadOptions]
    ) -> T: ...
    @overload
    def get(
        self, query: str, params: Params | None = None, *, type: TypeForm[T], default: D, **options: Unpack[ReadOptions]
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
        """Return the value of a query from the cache, at once while there is one within its grace.

        Args:
            query: the name under which a worker has registered it.
            params: names and JSON-like values; at most 16 KiB.
            version: the schema version that this reader understands.
            max_age: accept only a value whose load began at most this long ago, or after the call.
            fresh: accept only a value whose load began after this call.
            min_generation: accept only a value read after that `Invalidation` (or its ``generations``, or one of them).
            min_bookmarks: accept only a value whose load was given these bookmarks of the graph.
            timeout: the longest wait, if one is needed; default STAMPEDE_WAIT_TIMEOUT_MS.
            default: returned instead of RefreshFailed, WaitTimeout and CacheUnavailable.
            type: the type of the result (a dataclass, msgspec.Struct, TypedDict, ``list[int]`` …).

        Raises:
            InvalidQuery: the call itself is wrong; nothing was sent.
            RefreshFailed, UnknownQuery, WaitTimeout, CacheUnavailable: there is no value; see `api_client.errors`.
            DecodeError: the value does not fit ``type``.
        """
        # `key`, inlined: the call would be a few percent of a local hit.
        key = make_key(self._namespace, query, params, options.get("version", 1) if options else 1)
        if self._tier is not None and not options:
            value = self._core.try_local_fast_path(key, type)
            if value is not NOT_KEPT:
                return value
        try:
            return self._read(key, type, options).value
        except (RefreshFailed, WaitTimeout, CacheUnavailable):
            if isinstance(default, NoDefault):
                raise
            return default

    @overload
    def get_entry(
        self, query: str, params: Params | None = None, *, type: TypeForm[T], **options: Unpack[ReadOptions]
    ) -> Entry[T]: ...
    @overload
    def get_entry(self, query: str, params: Params | None = None, **options: Unpack[ReadOptions]) -> Entry[Any]: ...
    def get_entry(
        self, query: str, params: Params | None = None, *, type: Any = Any, **options: Unpack[ReadOptions]
    ) -> Entry[Any]:
        """Return the value with all that the cache knows about it. Arguments and errors as for `get`, but no default.

        Its ``state`` is STALE if the value is past its soft expiry or was invalidated after its load began, even if
        this read has waited for it; see `EntryState`.
        """
        return Entry.of(self._read(self.key(query, params, version=options.get("version", 1)), type, options))

    def get_many(self, calls: Iterable[AnyCall], **options: Unpack[ReadOptions]) -> list[Entry[Any] | CacheError]:
        """Read many values at once: one round trip for all existing entries, and one wait for the others.

        Args:
            calls: at most 10,000 pairs of query and params, or `QueryCall`, of any queries.
            options: as for `get`, for all items.

        Returns an entry or an error for each item, in order; a bad or failing item does not affect the others.

        Raises:
            InvalidQuery: an option is wrong, or there are too many items.
        """
        batch = self._batch(calls, options)
        self._reads.read_all(batch)
        return batch.results

    def invalidate(
        self,
        query: str,
        params: Params | None = None,
        *,
        version: int | None = None,
        hard: bool = False,
        bookmarks: Collection[str] = (),
        replicas: int = 0,
    ) -> Invalidation:
        """Make the value stale, or drop it, in every version that workers load.

        Once this has returned, no value whose load began before it is stored as fresh, and after a hard invalidation
        none is stored at all.

        Args:
            query, params: as for `get`.
            version: the only version to invalidate; default: all that workers have registered, and always version 1.
            hard: also drop the value, so that the next read waits.
            bookmarks: the bookmarks of the transaction that changed the graph, after which the next load reads. Needed
                if the worker may read from a follower.
            replicas: the number of Redis replicas to wait for (at most half of CACHE_REDIS_TIMEOUT per version).

        Returns the invalidation, with its number for each version.

        Raises:
            InvalidQuery: an argument is wrong; nothing was sent.
            CacheUnavailable: nothing was done, or it is not known whether it was.
        """
        key = self.key(query, params, version=1 if version is None else version)
        return self._invalidate(key, all_versions=version is None, hard=hard, bookmarks=bookmarks, replicas=replicas)

    def _invalidate(self, key: CacheKey, **options: Unpack[InvalidationOptions]) -> Invalidation:
        return drive(self._invalidation(key, **options), lambda calls: self._link.run_each(calls, key.query))

    def invalidate_many(
        self, calls: Iterable[AnyCall], *, hard: bool = False, bookmarks: Collection[str] = ()
    ) -> list[Invalidation | CacheError]:
        """Invalidate many keys, each in every version that workers load, in one round trip (two if a version is new).

        Args:
            calls: at most 10,000 pairs of query and params, or `QueryCall`.
            hard, bookmarks: as for `invalidate`, for all items.

        Returns an invalidation or an error for each item, in order; a bad or failing item does not affect the others.

        Raises:
            InvalidQuery: an option is wrong, or there are too many items; nothing was sent.
        """
        rounds = self._many_invalidations(calls, hard=hard, bookmarks=bookmarks)
        return drive(rounds, self._link.run_each)

    def invalidate_tags(
        self, tags: Collection[str], *, hard: bool = False, bookmarks: Collection[str] = (), wait: bool = True
    ) -> TagInvalidation:
        """Make every value that depends on one of the tags stale, or drop it, whatever its query.

        Once this has returned, no such value whose load began before it is stored as fresh, and after a hard
        invalidation none is stored at all. If this process ends in the middle, or the call fails once the invalidation
        is stored, a worker finishes it.

        Args:
            tags: at most 64 tags, as in ``@query(tags=…)``.
            hard: also drop the values, so that the next reads wait.
            bookmarks: the bookmarks of the transaction that changed the graph, after which the next loads read. Needed
                if workers may read from a follower.
            wait: False to return once the invalidation is stored, and leave the entries to a worker: loads in progress
                notice it, and other values are stale within seconds.

        Raises:
            InvalidQuery: an argument is wrong; nothing was sent.
            CacheUnavailable: it is not known whether the invalidation was stored; call again.
        """
        rounds = self._tag_walk(tags, hard=hard, bookmarks=bookmarks, wait=wait)
        return drive(rounds, self._link.run_each)

    @contextmanager
    def writes(
        self, session: Session[Tx], *, tags: Collection[str] = (), keys: Collection[AnyCall] = (), hard: bool = False
    ) -> Iterator[Tx]:
        """Write to the graph, and invalidate dependent values: ``with client.writes(session, tags=[…]) as tx:``.

        The block gets a transaction of the session, which is committed at its end; then tags and keys are invalidated,
        with the session's bookmarks. If the block raises, the transaction is rolled back and nothing is invalidated. If
        the commit fails, its error is raised, but tags and keys are invalidated, since it may have happened
        nevertheless.

        Args:
            session: a session of the neo4j driver without an open transaction.
            tags, hard: as for `invalidate_tags`. A list of tags may grow in the block.
            keys: as the calls of `invalidate_many`, but not an iterator. A list may grow in the block.

        Raises:
            InvalidQuery: an argument is wrong, or the session is async; nothing was written. Or the session's bookmarks
                can't be kept; then everything is written, and invalidated without them.
            CacheUnavailable: the write is done, but it is not known whether all invalidations are.
            Exception: an error of the block or the driver.
        """
        self._checked_write(tags, keys, hard=hard)
        tx: Tx = begin_transaction(session, is_async=False)
        try:
            yield tx
            names, calls = self._checked_write(tags, keys, hard=hard)
        except BaseException:
            tx.close()
            raise
        try:
            tx.commit()
        except BaseException as error:
            try:
                drive(self._write_rounds(names, calls, hard=hard, bookmarks=()), self._link.run_each)
            except CacheError as lost:
                error.add_note(f"the cache could not be invalidated: {lost}")
            raise
        bookmarks = tuple(session.last_bookmarks().raw_values)
        drive(self._write_rounds(names, calls, hard=hard, bookmarks=bookmarks), self._link.run_each)

    def refresh(
        self,
        query: str,
        params: Params | None = None,
        *,
        version: int = 1,
        wait: bool = False,
        timeout: Duration | None = None,
    ) -> RefreshState:
        """Claim and publish a refresh now, even of a fresh value, or of a key that is cooling after a failure.

        Returns TRIGGERED, or SUPPRESSED if a refresh was already in progress.

        Args:
            query, params, version, timeout: as for `get`.
            wait: return only once there is a value loaded after this call.

        Raises:
            InvalidQuery, CacheUnavailable: as for `get`.
            TriggerFailed: the refresh could not be published within 3 s, and its claim was taken back.
            RefreshFailed, WaitTimeout: with ``wait``, as for `get`.
        """
        manual = self._begin_refresh(query, params, version, wait, timeout)
        reply = self._link.run(manual.claim, manual.key.query)
        waker, outcome = Waker(), list[Exception | None]()

        def done(error: Exception | None) -> None:
            outcome.append(error)
            waker.wake()

        if trigger := manual.on_reply(reply, done):
            self._publisher.submit(trigger)
            waker.wait(PUBLISH_BOUND_SECONDS)
            if (error := outcome[0] if outcome else TimeoutError()) is not None:
                raise manual.failed(error) from error
        if manual.has_waiter:
            self._waits.run(self._wait_after(manual, reply))
            self._core.forget(manual.key)
        return manual.state

    def explain(self, query: str, params: Params | None = None, *, version: int = 1) -> Explanation:
        """Explain why the value is or is not refreshed now; `str` of it is for people. Read-only, in one round trip.

        Args:
            query, params, version: as for `get`.

        Returns the entry's state, the inputs of the decision, this process's suppression of triggers, and the lease
        record with its owner.

        Raises:
            InvalidQuery, CacheUnavailable: as for `get`.
        """
        key = self.key(query, params, version=version)
        return self._explanation(key, self._link.execute_all(explain_reads(key), key.query))

    def flush(self, timeout: Duration = 1.0) -> bool:
        """Wait until every trigger of this process is published or dropped; return False if the time ran out."""
        return self._publisher.flush(seconds(timeout))

    def close(self) -> None:
        """Publish pending triggers, for at most a second, and end threads and connections.

        Afterwards the client still reads cached values; a miss and `refresh` raise CacheUnavailable.
        """
        self._close_parts()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, key: CacheKey, type_: Any, options: ReadOptions) -> ReadResult:
        freshness, timeout_seconds = self._read_requirements(key.query, options)
        return self._reads.read(key, freshness, timeout_seconds, type_)
