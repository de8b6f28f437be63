"""The sync reader: I/O only. What to do next is decided in `read_core` and `read_plan`, as for the async one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from msgspec.structs import replace

from api_client.answers import NO_DEFAULT, Answer, Entry, Invalidation, NoDefault, RefreshState
from api_client.batches import AnyCall
from api_client.client_base import (
    PUBLISH_BOUND_SECONDS,
    ClientBase,
    manual_trigger,
    new_claim_id,
    not_published,
    state_of,
)
from api_client.durations import Duration, seconds
from api_client.errors import CacheError, CacheUnavailable, RefreshFailed, WaitTimeout
from api_client.explain import Explanation, explain_reads
from api_client.floors import ReadOptions, flag_of
from api_client.judging import Floor
from api_client.keys import CacheKey, make_key
from api_client.live_versions import none_failed
from api_client.local_entry import NOT_KEPT
from api_client.params import Params
from api_client.publisher import Trigger
from api_client.read_path import ReadPath
from api_client.threads import Waker
from api_client.waits import WaitDriver

if TYPE_CHECKING:
    # Known to type checkers without being installed; nothing of it is needed at run time.
    from typing_extensions import TypeForm

T = TypeVar("T")
D = TypeVar("D")


class CacheClient(ClientBase):
    """A reader. Thread-safe; one a process is enough, and after a fork it comes up anew by itself.

    Args:
        settings: default: read from the environment.
        events: who counts what happens; default: nobody.

    Raises:
        ConfigurationError: a setting is wrong.
    """

    def _set_up_reads(self) -> None:
        self._driver = WaitDriver(self._link, self._publisher, self._notifications, self.settings)
        self._reads = ReadPath(self._core, self._link, self._publisher, self._driver)

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
        """Return the value of a query, from the cache: at once while there is one within its grace.

        Args:
            query: the name under which a worker has registered it.
            params: names and JSON-like values; at most 16 KiB.
            version: the schema version that this reader understands.
            max_age: the value's load began at most this long ago, or after the call.
            fresh: only a value whose load began after this call.
            min_generation: only a value read after that `Invalidation` (or its ``generations``, or one of them).
            min_bookmarks: only a value whose load was given these bookmarks of the graph.
            timeout: how long to wait where a wait is needed; default STAMPEDE_WAIT_TIMEOUT_MS.
            default: returned instead of RefreshFailed, WaitTimeout and CacheUnavailable.
            type: what to decode into (a dataclass, msgspec.Struct, TypedDict, ``list[int]`` …).

        Raises:
            InvalidQuery: the call itself is wrong; nothing was sent.
            RefreshFailed, UnknownQuery, WaitTimeout, CacheUnavailable: no value; see `api_client.errors`.
            DecodeError: the value does not fit ``type``.
        """
        if self._tier is not None and not options:
            value = self._core.quiet_value(make_key(self._namespace, query, params, 1), type)
            if value is not NOT_KEPT:
                return value
        try:
            return self._read(query, params, type, options)[0]
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
        """Return the value with all that the cache knows of it. Arguments and errors as for `get`, but no default.

        Its ``state`` is STALE wherever the value is past its soft expiry or was invalidated after its load began, also
        where this read has waited for it: see `EntryState`.
        """
        return Entry.of(*self._read(query, params, type, options))

    def get_many(self, calls: Iterable[AnyCall], **options: Unpack[ReadOptions]) -> list[Entry[Any] | CacheError]:
        """Read many at once: one round trip for all that is there, and one wait for all that is not.

        Args:
            calls: pairs of query and params, or `QueryCall`; of any queries, at most 10,000.
            options: of all of them; as for `get`.

        Returns an entry or an error for each, in their order: a bad or failing item does not touch the others.

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
        """Make the value stale from now on, or gone, in every version that workers load.

        Once this has returned, no value whose load began before it is stored as fresh, and after a hard one none is
        stored at all.

        Args:
            query, params: as for `get`.
            version: only this version; default: all that workers have registered, and version 1 in any case.
            hard: drop the value too: the next read waits.
            bookmarks: of the transaction that changed the graph; the next load reads after them. Needed where the
                worker may read from a follower.
            replicas: wait until so many replicas of Redis have it (at most half of CACHE_REDIS_TIMEOUT for each
                version).

        Returns the number of the invalidation for each version.

        Raises:
            InvalidQuery, CacheUnavailable: nothing was done, or it is not known whether it was.
        """
        key = self.key(query, params, version=1 if version is None else version)
        return self._invalidate(key, all_versions=version is None, hard=hard, bookmarks=bookmarks, replicas=replicas)

    def _invalidate(
        self, key: CacheKey, *, all_versions: bool, hard: bool, bookmarks: Collection[str], replicas: int
    ) -> Invalidation:
        """Invalidate ``key``, and with ``all_versions`` the same of every live version."""
        with self._invalidation(
            key, all_versions=all_versions, hard=hard, bookmarks=bookmarks, replicas=replicas
        ) as invalidation:
            if replicas:
                return self._invalidate_on_replicas(key, invalidation, replicas, all_versions=all_versions)
            rounds = invalidation.rounds()
            calls = next(rounds)
            while True:
                try:
                    calls = rounds.send(none_failed(self._link.run_each(calls, key.query)))
                except StopIteration as done:
                    return Invalidation(done.value[key.version], None, done.value)

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
            InvalidQuery, CacheUnavailable: as for `get`.
            TriggerFailed: it could not be published within 3 s; a claim that is not published is taken back.
            RefreshFailed, WaitTimeout: with ``wait``, as for `get`.
        """
        key = self.key(query, params, version=version)
        timeout_seconds = self._timeout_seconds(key.query, timeout)
        wait = flag_of(key.query, "wait", wait)
        claim_id = new_claim_id()
        reply = self._link.run(self._forced_claim(key, claim_id), key.query)
        if trigger := manual_trigger(key, reply, claim_id, someone_waits=wait):
            self._publish_now(trigger)
        if wait:
            self._driver.wait(key, Floor(fresh=True), 0, timeout_seconds, asked=reply)
            self._core.forget(key)
        return state_of(reply)

    def explain(self, query: str, params: Params | None = None, *, version: int = 1) -> Explanation:
        """Explain why the value is refreshed now or not; `str` of it is for people. Nothing is changed, one round trip.

        Args:
            query, params, version: as for `get`.

        Returns the entry's state, what the decision rests on, this process's last decision about it and what came of
        that, and the lease record with whoever holds it.

        Raises:
            InvalidQuery, CacheUnavailable: as for `get`.
        """
        key = self.key(query, params, version=version)
        return self._explanation(key, self._link.ask_all(explain_reads(key), key.query))

    def flush(self, timeout: Duration = 1.0) -> bool:
        """Wait until every trigger of this process has been published or dropped; False when the time ran out."""
        return self._publisher.flush(seconds(timeout))

    def close(self) -> None:
        """Publish what is left, for at most a second, and end threads and connections."""
        self._close_parts()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, query: str, params: Params | None, type_: Any, options: ReadOptions) -> Answer:
        key = make_key(self._namespace, query, params, options.get("version", 1))
        floor, timeout_seconds = self._wanted(key.query, options)
        return self._reads.read(key, floor, timeout_seconds, type_)

    def _publish_now(self, trigger: Trigger) -> None:
        waker, came = Waker(), list[Exception | None]()

        def done(error: Exception | None) -> None:
            came.append(error)
            waker.wake()

        self._publisher.submit(replace(trigger, done=done))
        waker.wait(PUBLISH_BOUND_SECONDS)
        error = came[0] if came else TimeoutError()
        if error is not None:
            raise not_published(trigger, error) from error
