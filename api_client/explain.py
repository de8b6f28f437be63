"""Explanation of a key's refresh: its entry and its lease record. No I/O.

A client sends the commands of `explain_reads` in one round trip and hands the replies to `explanation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from api_client.protocol import xfetch
from api_client.protocol.clock import TOLERANCE_US
from api_client.protocol.entry import MAX_HEADER_BYTES, Header, UnreadableEntry, decode_header
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import RecordState
from api_client.protocol.model import EntryState

GONE: Final = -2  # PTTL's reply for an absent key
MINUTE_SECONDS: Final = 60
HOUR_SECONDS: Final = 3_600
_STATES: Final = frozenset(state.value for state in RecordState)
_NEXT_READ: Final = "the next read will trigger a refresh"
_MISS_REASONS: Final = {
    "garbage": "the key holds no valid entry",
    "version": "the entry is of a later release",
    "flags": "the entry needs a later release",
    "digest": "the entry is another key's",
    "handoff": "the value is only for reads that waited for it (TTL 0)",
}


@dataclass(frozen=True, slots=True)
class RecordView:
    """The lease record. ``left`` is the rest of its state in seconds; at 0 that is over, and anyone may claim.

    ``by`` is its owner: the claimer, or the worker that runs it; "(in place)" means within another task or load.
    ``token`` is the run's token (0: none). ``kind`` and ``attempts`` describe the failure for which it retries or
    cools. ``bookmarks`` is the number of bookmarks that the next load reads after, ``failures`` the number of failures
    in a row through a fault of the key.
    """

    state: RecordState
    left: float
    by: str
    token: int
    generation: int
    kind: str
    attempts: int
    bookmarks: int
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reason for which a key is or is not refreshed now; ``str()`` of it is for people. Durations in seconds.

    Attributes:
        key: the entry's key in Redis. No params are in here.
        state: FRESH, STALE, or MISS if nothing can be served; then ``unreadable`` is the reason, if the key exists.
        age: the time since the load began.
        ttl_remaining: the time until the soft expiry; negative past it.
        grace_left: the time until Redis drops the value; None if it never does.
        delta, beta, degree, sigma, draw_digits: inputs of the decision; see the architecture's "The decision".
        lead_bound: the longest lead of a refresh before the soft expiry.
        probability: the probability that a read now triggers a refresh.
        is_invalidated: True if an invalidation came after the load.
        tags: the value's tags.
        suppressed_for: the time for which this process suppresses further triggers of the key, after one of its own.
        record: the lease record; None if the key is idle.
        queue_length: background refreshes (early and stale) queued in the broker; from a client, by its process's last
            poll (which needs an early refresh to publish, or one that has been queued for long). None if unknown.
        miss_queue_length: blocking refreshes (misses) queued in the broker. None if unknown, as always from a client.
    """

    query: str
    version: int
    key: str
    state: EntryState
    unreadable: str | None = None
    age: float = 0.0
    ttl: float = 0.0
    ttl_remaining: float = 0.0
    grace_left: float | None = 0.0
    delta: float = 0.0
    beta: float = 0.0
    degree: int = 0
    sigma: float = 0.0
    draw_digits: int = 0
    lead_bound: float = 0.0
    probability: float = 1.0
    is_invalidated: bool = False
    token: int = 0
    generation: int = 0
    stored_bytes: int = 0
    tags: tuple[str, ...] = ()
    suppressed_for: float = 0.0
    record: RecordView | None = None
    queue_length: int | None = None
    miss_queue_length: int | None = None

    def __str__(self) -> str:
        return text_of(self)


def explain_reads(key: CacheKey) -> tuple[tuple[str | int, ...], ...]:
    """Return the commands whose replies `explanation` takes, in this order. All but TIME are for the key's slot."""
    return (
        ("GETRANGE", key.entry, 0, MAX_HEADER_BYTES),  # only the header, since a value may be large
        ("STRLEN", key.entry),
        ("PTTL", key.entry),
        ("HGETALL", key.record),
        ("TIME",),
    )


def explanation(
    key: CacheKey, replies: Sequence[Any], *, suppressed_seconds: float = 0.0, queue_length: int | None = None
) -> Explanation:
    """Explain a key.

    Args:
        key: the key to explain.
        replies: the replies to `explain_reads`, from Redis or through redis-py, with an exception for each error reply.
        suppressed_seconds: the time for which the `TriggerSuppressor` still suppresses ``key.entry``.
        queue_length: the number of queued background refreshes.
    """
    head, stored_bytes, left_ms, fields, now = replies
    now_us = int(now[0]) * 1_000_000 + int(now[1])
    header, unreadable = _header(head, left_ms, key.digest)
    if header is None:
        explained = Explanation(key.query, key.version, key.entry, EntryState.MISS, unreadable)
    else:
        explained = _of_entry(key, header, left_ms, stored_bytes, now_us)
    return replace(
        explained, suppressed_for=suppressed_seconds, record=_record(fields, now_us), queue_length=queue_length
    )


def _of_entry(key: CacheKey, header: Header, left_ms: int, stored_bytes: int, now_us: int) -> Explanation:
    left_seconds, is_stale = (header.soft_expiry_us - now_us) / 1e6, header.is_stale(now_us)
    served = EntryState.STALE if is_stale else EntryState.FRESH
    return Explanation(
        key.query,
        key.version,
        key.entry,
        EntryState.MISS if header.is_handoff else served,
        "handoff" if header.is_handoff else None,
        age=max(0.0, (now_us - header.read_started_us) / 1e6),
        ttl=header.ttl_seconds,
        ttl_remaining=left_seconds,
        grace_left=None if left_ms < 0 else left_ms / 1_000,
        delta=header.delta.mean,
        beta=header.beta,
        degree=header.degree,
        sigma=header.sigma,
        draw_digits=header.draw_digits,
        lead_bound=header.ttl_seconds / 2,
        probability=1.0 if is_stale else _probability(header, left_seconds),
        is_invalidated=header.generation > header.token,
        token=header.token,
        generation=header.generation,
        stored_bytes=stored_bytes,
        tags=_tags(header),
    )


def _tags(header: Header) -> tuple[str, ...]:
    try:
        return header.tags
    except UnreadableEntry:
        return ()


def _probability(header: Header, left_seconds: float) -> float:
    return xfetch.refresh_probability(
        left_seconds,
        delta_seconds=header.delta.mean,
        beta=header.beta,
        ttl_seconds=header.ttl_seconds,
        draw_digits=header.draw_digits,
    )


def _header(head: Any, left_ms: int, digest: bytes) -> tuple[Header | None, str | None]:
    if left_ms == GONE:
        return None, None
    if isinstance(head, Exception):  # the key holds another type
        return None, "garbage"
    try:
        return decode_header(head, digest), None
    except UnreadableEntry as error:
        return None, error.reason


def _record(reply: Any, now_us: int) -> RecordView | None:
    fields = _fields(reply)
    if fields.get("state") not in _STATES:
        return None
    since, until = _number(fields, "since"), _number(fields, "until")
    bookmarks = "\n".join(filter(None, map(fields.get, ("bookmarks_before", "bookmarks", "claim_bookmarks"))))
    return RecordView(
        state=RecordState(fields["state"]),
        left=0.0 if fields.get("cools_only_bookmarks") else left_seconds(since, until, now_us),
        by=_owner(fields),
        token=_number(fields, "token"),
        generation=_number(fields, "generation"),
        kind=fields.get("kind", ""),
        attempts=_number(fields, "attempts"),
        bookmarks=bookmarks.count("\n") + 1 if bookmarks else 0,
        failures=_number(fields, "failures"),
    )


def _owner(fields: Mapping[str, str]) -> str:
    by, nonce = fields.get("by", ""), fields.get("nonce")
    return f"{by} (in place)" if nonce and fields.get("in_place") == nonce else by


def left_seconds(since_us: int, until_us: int, now_us: int) -> float:
    """Return how long a record's state still lasts, as the scripts do (`left_us` in their prelude).

    Args:
        since_us, until_us: the record's fields, by Redis' clock; 0 if it lacks them.
        now_us: Redis' time.
    """
    if now_us < since_us - TOLERANCE_US:
        return 0.0  # the clock was set back, so the state counts as over
    return max(0.0, (until_us - max(now_us, since_us)) / 1e6)


def _fields(reply: Any) -> dict[str, str]:
    """Parse HGETALL's reply: a mapping (RESP3, redis-py), or alternating names and values."""
    if isinstance(reply, Exception):
        return {}
    flat: Iterable[Any] = [part for pair in reply.items() for part in pair] if isinstance(reply, Mapping) else reply
    # A nonce is eight arbitrary bytes, and is not shown.
    parts = [part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in flat]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _number(fields: Mapping[str, str], name: str) -> int:
    value = fields.get(name, "")
    return int(value) if value.isdecimal() else 0


def text_of(explained: Explanation) -> str:
    """Return the explanation as a few lines."""
    lines = [f"{explained.query} v{explained.version}: {reason_of(explained)}"]
    lines += [f"  {name:<9}{text}" for name, text in details_of(explained)]
    return "\n".join(lines)


def reason_of(explained: Explanation) -> str:
    """Return one sentence about why the key is or is not refreshed."""
    if explained.state is EntryState.MISS:
        why = _MISS_REASONS.get(explained.unreadable or "", "there is no entry")
        return f"a miss: {why}; {_next_of(explained)}"
    if explained.state is EntryState.STALE:
        why = "invalidated" if explained.is_invalidated else f"stale for {duration(-explained.ttl_remaining)}"
        return f"{why}: every read triggers a refresh; {_next_of(explained)}"
    likely = f"a refresh is {percent(explained.probability)} likely now"
    if explained.suppressed_for > 0 or (explained.record is not None and explained.record.left > 0):
        likely += f"; {_next_of(explained)}"
    return f"not refreshed: {duration(explained.ttl_remaining)} left; {likely}"


def details_of(explained: Explanation) -> list[tuple[str, str]]:
    """Return the facts behind the sentence, as pairs of a name and a line."""
    details = [("entry", _entry_line(explained))]
    if explained.state is not EntryState.MISS:
        details.append(("decision", _decision_line(explained)))
    if explained.tags:
        # Kept on one line, since a tag is arbitrary text.
        details.append(("tags", ", ".join("".join(filter(str.isprintable, tag)) for tag in explained.tags)))
    details.append(("lease", _record_line(explained.record, explained.token)))
    if explained.queue_length is not None:
        blocking = "" if explained.miss_queue_length is None else f", {explained.miss_queue_length} blocking"
        details.append(("queued", f"{explained.queue_length} background{blocking}"))
    return details


def duration(seconds: float) -> str:
    """Format a duration for people."""
    if 0 < seconds < 0.01:
        return f"{seconds * 1_000:.2g} ms"
    if 0 < seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 2 * MINUTE_SECONDS:
        return f"{seconds:.1f} s"
    if seconds < 2 * HOUR_SECONDS:
        return f"{seconds / MINUTE_SECONDS:.0f} min"
    return f"{seconds / HOUR_SECONDS:.1f} h"


def percent(probability: float) -> str:
    """Format a probability in percent, with two digits."""
    if 0 < probability < 0.0001:
        return "less than 0.01 %"
    return f"{probability:.0%}".replace("%", " %") if probability >= 0.1 else f"{probability * 100:.2g} %"


def _next_of(explained: Explanation) -> str:
    """Describe the refresh in progress, or the reason that suppresses it."""
    record = explained.record
    if record is not None and record.left > 0:
        return {
            RecordState.QUEUED: "one is queued",
            RecordState.RUNNING: f"{_by(record)} loads it",
            RecordState.RETRYING: f"last load failed ({record.kind}); a retry is due",
            RecordState.COOLING: f"last refresh failed ({record.kind}); {_backoff(record)}",
        }.get(record.state, _NEXT_READ)
    if explained.suppressed_for > 0:
        return f"already triggered by this process, suppressed for another {duration(explained.suppressed_for)}"
    return f"{_NEXT_READ} and wait for it" if explained.state is EntryState.MISS else _NEXT_READ


def _backoff(record: RecordView) -> str:
    how = "cooling" if record.failures <= 1 else "backing off"
    return f"{how} for another {duration(record.left)}"


def _entry_line(explained: Explanation) -> str:
    if explained.state is EntryState.MISS and explained.token == 0:
        return "none" if explained.unreadable is None else f"unreadable ({explained.unreadable})"
    kept = "forever" if explained.grace_left is None else f"for {duration(explained.grace_left)} more"
    parts = [
        f"{explained.state.value}, {duration(explained.age)} old, TTL {duration(explained.ttl)}, kept {kept}",
        f"{explained.stored_bytes:,} bytes",
        f"token {explained.token}",
    ]
    if explained.generation:
        parts.append(_invalidated_as(explained.generation, explained.token))
    return ", ".join(parts)


def _decision_line(explained: Explanation) -> str:
    degree = f"degree {explained.degree}" if explained.degree else "degree not known"
    digits = f", draws cut at {explained.draw_digits} digits" if explained.draw_digits else ""
    if explained.beta <= 0:
        return "no early refresh (β 0)"
    return (
        f"δ {duration(explained.delta)}, β {explained.beta:.3g} ({degree}, σ {explained.sigma:.3g}), "
        f"at most {duration(explained.lead_bound)} early{digits}; likely now: {percent(explained.probability)}"
    )


def _invalidated_as(generation: int, entry_token: int) -> str:
    return f"{'invalidated' if generation > entry_token else 'last invalidated'} as {generation}"


def _record_line(record: RecordView | None, entry_token: int) -> str:
    if record is None:
        return "idle"
    parts = [record.state.value]
    if record.by:
        parts.append(f"by {record.by}")
    if record.state not in {RecordState.INVALIDATED, RecordState.IDLE}:
        parts.append(f"{duration(record.left)} left" if record.left > 0 else "expired, claimable")
    if record.kind:
        parts.append(f"{record.kind} after {record.attempts} attempt{'s' if record.attempts != 1 else ''}")
    if record.failures > 1:
        parts.append(f"failed {record.failures} times in a row")
    if record.token:
        parts.append(f"token {record.token}")
    if record.generation:
        parts.append(_invalidated_as(record.generation, entry_token))
    if record.bookmarks:
        parts.append(f"{record.bookmarks} bookmarks to read after")
    return ", ".join(parts)


def _by(record: RecordView) -> str:
    return record.by or "a worker"
