"""An explanation in words: a sentence that says why, and below it what that rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from api_client.answers import EntryState, RefreshState
from api_client.decisions import Outcome, TriggerOutcome
from api_client.lease import RecordState

if TYPE_CHECKING:
    from api_client.explain import Explanation, LastRead, RecordView

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
