"""Why a key is refreshed now, or not: its entry, its lease record, and what this process last did about it. No I/O.

A client sends the commands of `explain_reads` in one round trip and hands the replies to `explanation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from api_client import xfetch
from api_client.answers import EntryState, RefreshState
from api_client.clock import TOLERANCE_US
from api_client.decisions import Decision, Outcome
from api_client.entry import MAX_HEADER_BYTES, Header, UnreadableEntry, decode_header
from api_client.keys import CacheKey
from api_client.lease import RecordState

GONE: Final = -2  # what PTTL says of a key that is not there
_STATES: Final = frozenset(state.value for state in RecordState)


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last read of this process that drew, or was past the soft expiry. Durations in seconds.

    ``u`` is its draw in (0, 1], ``lead`` how early that would have refreshed, ``left`` the time to the soft expiry
    then; both None where the entry has been replaced since. ``refresh`` is what the read did about it; while
    ``silent_for`` lasts, this process asks no more for this key.
    """

    ago: float
    u: float
    lead: float | None
    left: float | None
    refresh: RefreshState
    silent_for: float


@dataclass(frozen=True, slots=True)
class RecordView:
    """The lease record. ``left`` is how long its state lasts, in seconds; 0: that is over, and anyone may claim.

    ``by`` is who claimed it, or the worker that runs it. ``token`` is that of the run (0: none), ``kind`` and
    ``attempts`` say why it retries or cools, ``bookmarks`` is how many the next load reads after, ``failures``
    how often in a row the key was given up for a fault of its own.
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
    """Why a key is refreshed now, or not; ``str()`` of it is for people. Durations in seconds.

    Attributes:
        key: the entry's key in Redis. Params are nowhere in here.
        state: FRESH, STALE, or MISS where nothing can be served; ``unreadable`` then says why, if something is there.
        age: since the load began.
        ttl_remaining: until the soft expiry; negative past it.
        grace_left: until Redis drops the value; None where it never does.
        delta, beta, degree, sigma, draw_digits: what the decision rests on; see the architecture's "The decision".
        lead_bound: a refresh is never earlier than this before the soft expiry.
        probability: that a read now asks for a refresh.
        is_invalidated: an invalidation came after the load.
        last: what this process did last; None where it has not read the key, or not so close to its soft expiry.
        outcome: what became of the last refresh that this process asked for.
        record: None where nothing is going on.
        queue_length: refreshes that wait in the broker; from a client, as its process last heard when it had an
            early one to publish, or one that had been queued for long. None where it was not asked, or could not be.
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
    last: LastRead | None = None
    outcome: Outcome | None = None
    record: RecordView | None = None
    queue_length: int | None = None

    def __str__(self) -> str:
        from api_client.explain_text import text_of

        return text_of(self)


def explain_reads(key: CacheKey) -> tuple[tuple[str | int, ...], ...]:
    """Return the commands whose replies `explanation` reads, in this order. All but TIME are of the key's slot."""
    return (
        ("GETRANGE", key.entry, 0, MAX_HEADER_BYTES),  # a value may be large, and its header is at the front
        ("STRLEN", key.entry),
        ("PTTL", key.entry),
        ("HGETALL", key.record),
        ("TIME",),
    )


def explanation(
    key: CacheKey,
    replies: Sequence[Any],
    *,
    decision: Decision | None = None,
    outcome: Outcome | None = None,
    silent_seconds: float = 0.0,
    queue_length: int | None = None,
) -> Explanation:
    """Explain a key.

    Args:
        key: the key.
        replies: to `explain_reads`, as Redis gives them or as redis-py makes of them; an error of one is that reply.
        decision, outcome: what `Decisions` remembers of ``key.entry``.
        silent_seconds: for how long `AskedRecently` covers ``key.entry``.
        queue_length: what the broker says.
    """
    head, stored_bytes, left_ms, fields, now = replies
    now_us = int(now[0]) * 1_000_000 + int(now[1])
    header, unreadable = _header(head, left_ms, key.digest)
    if header is None:
        explained = Explanation(key.query, key.version, key.entry, EntryState.MISS, unreadable)
    else:
        explained = _of_entry(key, header, left_ms, stored_bytes, now_us)
    return replace(
        explained,
        last=None if decision is None else _last_read(decision, header, now_us, silent_seconds),
        outcome=outcome,
        record=_record(fields, now_us),
        queue_length=queue_length,
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
    )


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
    if isinstance(head, Exception):  # another type lies under the key
        return None, "garbage"
    try:
        return decode_header(head, digest), None
    except UnreadableEntry as error:
        return None, error.reason


def _last_read(decision: Decision, header: Header | None, now_us: int, silent_seconds: float) -> LastRead:
    lead = left = None
    if header is not None and decision.at_us >= header.fetched_at_us:
        left = (header.soft_expiry_us - decision.at_us) / 1e6
        lead = 0.0
        if header.beta > 0 and header.delta.mean > 0:
            u = xfetch.cut_draw(decision.u, header.draw_digits)
            lead = xfetch.lead_seconds(header.delta.mean, header.beta, header.ttl_seconds, u)
    ago = max(0.0, (now_us - decision.at_us) / 1e6)
    return LastRead(ago, decision.u, lead, left, decision.refresh, silent_seconds)


def _record(reply: Any, now_us: int) -> RecordView | None:
    fields = _fields(reply)
    if fields.get("state") not in _STATES:
        return None
    since, until = _number(fields, "since"), _number(fields, "until")
    bookmarks = "\n".join(filter(None, map(fields.get, ("bookmarks_before", "bookmarks", "claim_bookmarks"))))
    return RecordView(
        state=RecordState(fields["state"]),
        left=0.0 if fields.get("cools_only_bookmarks") else left_seconds(since, until, now_us),
        by=fields.get("by", ""),
        token=_number(fields, "token"),
        generation=_number(fields, "generation"),
        kind=fields.get("kind", ""),
        attempts=_number(fields, "attempts"),
        bookmarks=bookmarks.count("\n") + 1 if bookmarks else 0,
        failures=_number(fields, "failures"),
    )


def left_seconds(since_us: int, until_us: int, now_us: int) -> float:
    """Return how long a record's state lasts, as the scripts reckon it (`left_us` in their prelude).

    Args:
        since_us, until_us: the record's fields, by Redis' clock; 0 where it has none.
        now_us: Redis' clock.
    """
    if now_us < since_us - TOLERANCE_US:
        return 0.0  # the clock was set back: it counts as over
    return max(0.0, (until_us - max(now_us, since_us)) / 1e6)


def _fields(reply: Any) -> dict[str, str]:
    """Read HGETALL's reply: a mapping of RESP3 and redis-py, or names and values by turns."""
    if isinstance(reply, Exception):
        return {}
    flat: Iterable[Any] = [part for pair in reply.items() for part in pair] if isinstance(reply, Mapping) else reply
    # A nonce is eight bytes of anything; nothing here shows it.
    parts = [part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in flat]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _number(fields: Mapping[str, str], name: str) -> int:
    value = fields.get(name, "")
    return int(value) if value.isdecimal() else 0
