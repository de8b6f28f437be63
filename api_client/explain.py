"""Why a key is refreshed now, or not: its entry, its lease record, and what this process last did about it. No I/O.

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
from api_client.protocol.model import EntryState, RefreshState
from api_client.trigger.history import Decision, Outcome, TriggerOutcome

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
        decision, outcome: what `DecisionLog` remembers of ``key.entry``.
        silent_seconds: for how long `TriggerSuppressor` covers ``key.entry``.
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


MINUTE_SECONDS: Final = 60
HOUR_SECONDS: Final = 3_600

_DROPPED_FOR: Final = {
    "breaker": "the broker failed repeatedly and is left alone for a moment",
    "backpressure": "too many refreshes wait, and this one was early",
    "backlog": "this process has too many to publish",
    "closed": "the client was closed",
}
_MISSED_FOR: Final = {
    "garbage": "what lies under the key is no entry",
    "version": "the entry is of a later release",
    "flags": "the entry needs a later release",
    "digest": "the entry is another key's",
    "handoff": "the value is for those who waited for it alone (TTL 0)",
}


def text_of(explained: Explanation) -> str:
    """Return the explanation as a few lines."""
    lines = [f"{explained.query} v{explained.version}: {reason_of(explained)}"]
    lines += [f"  {name:<9}{text}" for name, text in details_of(explained)]
    return "\n".join(lines)


def reason_of(explained: Explanation) -> str:
    """Return the one sentence that says why the key is refreshed, or not."""
    if explained.state is EntryState.MISS:
        why = _MISSED_FOR.get(explained.unreadable or "", "there is no entry")
        return f"a miss: {why}; {_next_of(explained)}"
    if explained.state is EntryState.STALE:
        why = "invalidated" if explained.is_invalidated else f"stale for {duration(-explained.ttl_remaining)}"
        return f"{why}, so every read asks for a refresh; {_next_of(explained)}"
    likely = f"a refresh is {percent(explained.probability)} likely now"
    if explained.record is not None and explained.record.left > 0:
        likely += f"; {_next_of(explained)}"
    last, left = explained.last, duration(explained.ttl_remaining)
    if last is None or last.lead is None:
        return f"not refreshed: {left} left; {likely}"
    drew = f"drew {last.u:.2g} → lead {duration(last.lead)}"
    if last.refresh is RefreshState.NONE:
        return f"not refreshed: {left} left, {drew}; {likely}"
    return f"due early: {duration(last.left or 0.0)} were left, {drew}; {_next_of(explained)}"


def details_of(explained: Explanation) -> list[tuple[str, str]]:
    """Return what the sentence rests on: pairs of a name and a line."""
    details = [("entry", _entry_line(explained))]
    if explained.state is not EntryState.MISS:
        details.append(("decision", _decision_line(explained)))
    if explained.last is not None:
        details.append(("read", _read_line(explained.last)))
    if explained.outcome is not None:
        details.append(("asked", _outcome_line(explained.outcome)))
    details.append(("lease", _record_line(explained.record)))
    if explained.queue_length is not None:
        details.append(("queue", f"{explained.queue_length} waiting"))
    return details


def duration(seconds: float) -> str:
    """Return a duration for people."""
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
    """Return a probability in percent, two digits of it."""
    if 0 < probability < 0.0001:
        return "less than 0.01 %"
    return f"{probability:.0%}".replace("%", " %") if probability >= 0.1 else f"{probability * 100:.2g} %"


def _next_of(explained: Explanation) -> str:
    """Say what is being done about the refresh, or what keeps it from being done."""
    record, outcome = explained.record, explained.outcome
    if record is not None and record.left > 0:
        return {
            RecordState.QUEUED: "one is queued",
            RecordState.RUNNING: f"{_by(record)} loads it",
            RecordState.RETRYING: f"a load failed ({record.kind}) and is tried again",
            RecordState.COOLING: f"it was given up ({record.kind}) and {_cools(record)}",
        }.get(record.state, "the next read asks")
    if explained.last is not None and explained.last.silent_for > 0:
        silent = duration(explained.last.silent_for)
        if outcome is not None and outcome.what in {TriggerOutcome.DROPPED, TriggerOutcome.FAILED}:
            return f"this process could not ask ({_outcome_why(outcome)}) and does not for {silent} more"
        return f"this process has asked, and does not for {silent} more"
    return "the next read asks, and waits" if explained.state is EntryState.MISS else "the next read asks"


def _cools(record: RecordView) -> str:
    how = "cools" if record.failures <= 1 else "is in quarantine"
    return f"{how} for {duration(record.left)} more"


def _entry_line(explained: Explanation) -> str:
    if explained.state is EntryState.MISS and explained.token == 0:
        return "none" if explained.unreadable is None else f"unreadable ({explained.unreadable})"
    kept = "for ever" if explained.grace_left is None else f"for {duration(explained.grace_left)} more"
    parts = [
        f"{explained.state.value}, {duration(explained.age)} old, TTL {duration(explained.ttl)}, kept {kept}",
        f"{explained.stored_bytes:,} bytes",
        f"token {explained.token}",
    ]
    if explained.generation:
        parts.append(f"invalidated as {explained.generation}")
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


def _read_line(last: LastRead) -> str:
    did = {
        RefreshState.NONE: "asked for nothing",
        RefreshState.TRIGGERED: "asked for a refresh",
        RefreshState.SUPPRESSED: "asked for nothing: this process has asked already",
        RefreshState.DROPPED: "could not hand its trigger over",
    }[last.refresh]
    which = "" if last.lead is not None else " (of an entry before this one)"
    again = f"; silent for {duration(last.silent_for)} more" if last.silent_for > 0 else ""
    return f"{duration(last.ago)} ago{which}, drew {last.u:.2g}, {did}{again}"


def _outcome_line(outcome: Outcome) -> str:
    why = f": {_outcome_why(outcome)}" if outcome.why else ""
    return f"{duration(outcome.ago_seconds)} ago, {outcome.what.value}{why}"


def _outcome_why(outcome: Outcome) -> str:
    if outcome.what is TriggerOutcome.DEDUPLICATED:
        return f"it was {outcome.why.replace('_', ' ')}"
    return _DROPPED_FOR.get(outcome.why, outcome.why)


def _record_line(record: RecordView | None) -> str:
    if record is None:
        return "idle"
    parts = [record.state.value]
    if record.by:
        parts.append(f"by {record.by}")
    if record.state not in {RecordState.INVALIDATED, RecordState.IDLE}:
        parts.append(f"{duration(record.left)} left" if record.left > 0 else "ran out, anyone may claim")
    if record.kind:
        parts.append(f"{record.kind} after {record.attempts} attempt{'s' if record.attempts != 1 else ''}")
    if record.failures > 1:
        parts.append(f"given up {record.failures} times in a row")
    if record.token:
        parts.append(f"token {record.token}")
    if record.generation:
        parts.append(f"invalidated as {record.generation}")
    if record.bookmarks:
        parts.append(f"{record.bookmarks} bookmarks to read after")
    return ", ".join(parts)


def _by(record: RecordView) -> str:
    return record.by or "a worker"
