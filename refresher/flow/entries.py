"""Entries of loaded values: terms, header and payload, and the division of commits into parts.

A value's terms (its life and its tags) are the query's unless its result sets them. An unchanged value keeps its tags,
and the terms that it had set itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from api_client.config.durations import Duration, seconds
from api_client.protocol.entry import Flag, Header, Revalidation, encode_revalidation, encode_tags
from api_client.protocol.entry import encode as encode_entry
from api_client.protocol.keys import CacheKey
from api_client.protocol.params import plain
from api_client.protocol.payload import Packed, pack
from api_client.protocol.tags import MAX_TAGS, check_tags
from refresher.errors import LoadFailed, text_of
from refresher.flow import policy
from refresher.flow.ports import Encode
from refresher.flow.run import MAX_BOOKMARKS_BYTES, MAX_BOOKMARKS_KEPT, LoadedEntry, Run, bookmarks_to_keep, newest
from refresher.queries import AUTO, MAX_SECONDS, Loaded, Query
from refresher.results import UNCHANGED, Previous, Result
from refresher.settings import WorkerSettings
from refresher.watched_tags import coarsened

HANDOFF_SECONDS: Final = 5.0
MAX_VERSION_CHARACTERS: Final = 200
NONE_KEPT: Final = Revalidation()
_SIZED: Final[tuple[Any, ...]] = (str, bytes, list, tuple, dict, set, frozenset)


def entry_of(
    query: Query,
    run: Run,
    loaded: Loaded,
    read_started_us: int,
    previous: Previous | None,
    *,
    encode: Encode,
    settings: WorkerSettings,
    u: float,
) -> LoadedEntry | LoadFailed:
    """Return the entry of a run's value, or the failure; the entry of an unchanged value is only a header."""
    try:
        terms = _terms_of(query, loaded, run.key, run.before if previous else None)
        unchanged = run.before if terms.is_unchanged else None
        if unchanged:
            packed = Packed(b"", unchanged.is_compressed, unchanged.has_arrays)
        else:
            encoded = encode(terms.value, query=query.name, max_bytes=settings.max_value_bytes)
            packed = pack(encoded, settings.compress_min_bytes)
    except LoadFailed as failure:
        failure.locate(query.loader)
        return failure
    try:
        header = _header_of(run, query, terms, loaded, read_started_us, settings, u)
    except ValueError as error:
        return LoadFailed("beta_function", text_of(error), is_transient=False)
    header = msgspec.structs.replace(header, is_compressed=packed.is_compressed, has_arrays=packed.has_arrays)
    content = encode_entry(header, run.key.digest, packed.content)
    return LoadedEntry(content, terms.hard_ttl_seconds, terms.tags, unchanged.nonce if unchanged else b"")


def parts_of(
    results: Iterable[tuple[Run, LoadedEntry | LoadFailed]], max_bytes: int
) -> Iterator[list[tuple[Run, LoadedEntry | LoadFailed]]]:
    """Divide results so that the entries of each part take at most ``max_bytes``, except for a larger single one."""
    part: list[tuple[Run, LoadedEntry | LoadFailed]] = []
    size = 0
    for run, entry in results:
        more = len(entry.content) if isinstance(entry, LoadedEntry) else 0
        if part and size + more > max_bytes:
            yield part
            part, size = [], 0
        part.append((run, entry))
        size += more
    yield part


def _header_of(
    run: Run, query: Query, terms: Terms, loaded: Loaded, read_started_us: int, settings: WorkerSettings, u: float
) -> Header:
    """Return the header of the entry that ``run`` commits now; ``u`` in [0, 1) determines its TTL's jitter.

    An unchanged value's header keeps data that only a load can provide: its duration, and the degree if not queried.

    Raises:
        ValueError: the query's own β function returned no valid number.
    """
    before, now_us, elapsed_seconds = run.before, run.now_us(), run.elapsed_seconds()
    unchanged = before if terms.is_unchanged else None
    loads = unchanged.run if unchanged else policy.smooth(before.run if before else None, elapsed_seconds)
    delta, kept = policy.estimate_delta(
        before.delta if before else None,
        before.delta_samples if before else (),
        run.delta_sample(loads.mean if unchanged else elapsed_seconds),
        query.delta_window,
    )
    jitter = settings.ttl_jitter if query.ttl_jitter is None else query.ttl_jitter
    degree = loaded.degree or (unchanged.degree if unchanged else 0)
    beta = 0.0
    if policy.early_refresh_is_on(
        enabled=settings.xfetch_enabled, ttl_seconds=terms.ttl_seconds, min_ttl_seconds=settings.min_ttl_seconds
    ):
        beta0 = settings.beta if query.beta is None else query.beta
        beta = policy.effective_beta(settings.refresh_mode, beta0, degree, query.sigma, query.beta_function)
    return Header(
        token=run.token,
        generation=run.lease.generation,
        soft_expiry_us=now_us + (not loaded.is_outdated) * int(policy.jittered(terms.ttl_seconds, jitter, u) * 1e6),
        nonce=run.nonce,
        read_started_us=read_started_us,
        fetched_at_us=now_us,
        ttl_seconds=terms.ttl_seconds,
        delta=delta,
        run=loads,
        beta=beta,
        degree=degree,
        sigma=query.sigma,
        draw_digits=settings.draw_digits,
        flags=Flag.HANDOFF if terms.ttl_seconds == 0 else Flag(0),
        bookmarks=newest(bookmarks_to_keep(run, settings)[-MAX_BOOKMARKS_KEPT:], MAX_BOOKMARKS_BYTES),
        delta_samples=kept,
        encoded_tags=encode_tags(terms.tags),
        encoded_revalidation=encode_revalidation(terms.revalidation),
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """A value and its terms. Durations in seconds."""

    value: Any
    ttl_seconds: float
    grace_seconds: float
    tags: tuple[str, ...] = ()
    revalidation: Revalidation = NONE_KEPT

    @property
    def is_unchanged(self) -> bool:
        """True if the entry's payload stays as it is."""
        return self.value is UNCHANGED

    @property
    def hard_ttl_seconds(self) -> float:
        """The entry's life in Redis, TTL and grace; only seconds if the value is never cached."""
        return self.ttl_seconds + self.grace_seconds if self.ttl_seconds else HANDOFF_SECONDS


def _terms_of(query: Query, loaded: Loaded, key: CacheKey, previous: Header | None) -> Terms:
    """Return the terms of a loader's result; ``previous`` is the entry that it may have found unchanged.

    Raises:
        LoadFailed: a `Result` has wrong terms, or the query's tags function returned wrong tags or raised.
    """
    result = loaded.value if isinstance(loaded.value, Result) else Result(loaded.value)
    kept = _kept(query, previous) if result.value is UNCHANGED else NONE_KEPT
    own = Revalidation(
        _version_of(query, result, loaded, kept),
        kept.ttl_seconds if (ttl_seconds := _own_ttl(query, result)) is None else ttl_seconds,
        kept.grace_seconds if result.grace is None else _duration(query, "grace", result.grace),
    )
    ttl_seconds = query.ttl_seconds if own.ttl_seconds is None else own.ttl_seconds
    grace_seconds = query.grace_seconds if own.grace_seconds is None else own.grace_seconds
    # A value that is never cached needs no index.
    tags = _tags_of(query, result, loaded.tags, key, previous) if ttl_seconds else ()
    return Terms(result.value, ttl_seconds, grace_seconds, tags, own if query.revalidates else NONE_KEPT)


def _kept(query: Query, previous: Header | None) -> Revalidation:
    if previous is None:
        raise _wrong(query, "UNCHANGED: allowed where the query is conditional, and there is a previous value")
    return previous.revalidation


def _version_of(query: Query, result: Result, loaded: Loaded, kept: Revalidation) -> Any:
    version = plain(result.version)
    if version is None:
        return kept.version if loaded.version is None else loaded.version
    if not query.conditional or query.version_cypher is not None:
        raise _wrong(query, "version=: allowed where the query is conditional, and has no version_cypher")
    is_number = isinstance(version, int) and not isinstance(version, bool) and abs(version) < 2**63
    if not (is_number or (isinstance(version, str) and len(version) <= MAX_VERSION_CHARACTERS)):
        allowed = f"text of at most {MAX_VERSION_CHARACTERS} characters, or a whole number of 64 bits"
        raise _wrong(query, f"version={version!r:.80}: expected {allowed}")
    return version


def _own_ttl(query: Query, result: Result) -> float | None:
    if result.ttl is not None:
        return _duration(query, "ttl", result.ttl)
    return query.negative_ttl_seconds if _is_negative(query, result) else None


def _duration(query: Query, name: str, given: Duration) -> float:
    try:
        duration_seconds = seconds(given)
    except ValueError as error:
        raise _wrong(query, f"{name}={given!r:.80}: {error}") from error
    if duration_seconds > MAX_SECONDS:
        raise _wrong(query, f"{name}={given!r:.80}: at most ten years")
    return duration_seconds


def _is_negative(query: Query, result: Result) -> bool:
    if not (result.negative is None or isinstance(result.negative, bool)):
        raise _wrong(query, f"negative={result.negative!r:.80}: expected True, False or None")
    if result.negative and query.negative_ttl_seconds is None:
        raise _wrong(query, "negative=True: allowed where the query has a negative_ttl")
    if result.negative is not None:
        return result.negative
    return result.value is None or _is_empty(result.value)


def _is_empty(value: Any) -> bool:
    """Return whether a value's length is 0, with the builtin's own method, since a subclass's may do anything."""
    kind = next((one for one in _SIZED if isinstance(value, one)), None)
    return kind is not None and kind.__len__(value) == 0


def _tags_of(
    query: Query, result: Result, read: tuple[str, ...], key: CacheKey, previous: Header | None
) -> tuple[str, ...]:
    try:
        own = check_tags(result.tags)
        if query.tags is None:
            if own:
                raise ValueError("a Result's tags are allowed where the query declares some: @query(tags=[])")
            return ()
        kept = previous.tags if previous is not None and result.value is UNCHANGED else ()
        if query.tags == AUTO:
            return check_tags((*coarsened((*kept, *read), MAX_TAGS - len(own)), *own))
        if isinstance(query.tags, tuple):
            of_query = query.tags
        elif result.value is UNCHANGED:
            of_query = ()  # the function needs the value
        else:
            of_query = check_tags(query.tags(result.value, **key.params))
        return check_tags((*kept, *of_query, *own)) if kept or own else of_query
    except Exception as error:
        raise LoadFailed("tags", f"tags of {query.name!r}: {text_of(error)}", is_transient=False) from error


def _wrong(query: Query, message: str) -> LoadFailed:
    return LoadFailed("result", f"the Result of {query.name!r}: {message}", is_transient=False)
