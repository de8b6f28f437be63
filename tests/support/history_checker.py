"""Checker of a history: no stale value was stored as fresh, each refresh had one winner, and each claim one end.

The rules are those of docs/explanation/guarantees.md (I1 to I4). A step that Redis did not answer may have been
done or not, so it frees what it could have freed, and is never a fault. A record counts as held until the earliest
moment at which that can have ended: two clocks are never compared, so no step is reported as early by mistake.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from api_client.protocol.entry import decode_header
from api_client.protocol.lease import AcquireStatus, ClaimStatus, CommitStatus, RecordState
from refresher.checker.oracle import Invalidated, Observation, contradiction
from tests.support.history import PENDING, Exchange, Happened, History, Note

NOT_HELD: Final = float("-inf")
_HELD = frozenset({RecordState.QUEUED, RecordState.RUNNING, RecordState.RETRYING, RecordState.COOLING})
_FREED_BY_INVALIDATION = frozenset({RecordState.RETRYING, RecordState.COOLING, RecordState.IDLE})


class End(StrEnum):
    """The end of a claim or run. One that is retried or handed over continues in another run of the same claim."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    FAILED = "failed"
    RETRIED = "retried"
    HANDED_OVER = "handed over"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    LOST = "lost"


GOES_ON: Final = frozenset({End.RETRIED, End.HANDED_OVER})


@dataclass(frozen=True, slots=True)
class Outcome:
    """An end, and its reason."""

    end: End
    why: str = ""

    def __str__(self) -> str:
        return f"{self.end} ({self.why})" if self.why else self.end.value


@dataclass(eq=False, slots=True)
class Claim:
    """The right to one refresh. The id is ``b""`` if no reader claimed: a message that outlived its claim."""

    id: bytes
    number: int
    outcome: Outcome | None = None
    runs: list[Run] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Run:
    """One acquire that got the lease. ``is_void``: its record went with the server's data, so it may write nothing."""

    nonce: bytes
    token: int
    claim: Claim
    outcome: Outcome | None = None
    is_void: bool = False


@dataclass(eq=False, slots=True)
class Ledger:
    """One key. ``state`` lasts at least until ``until`` (monotonic seconds), unless a step ends it before."""

    key: str
    state: RecordState = RecordState.IDLE
    until: float = NOT_HELD
    claim: Claim | None = None
    run: Run | None = None
    ticket: bytes = b""
    claims: list[Claim] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    committed_token: int = 0
    version_written: int = 0
    invalidated: Invalidated | None = None
    skips: dict[int, str] = field(default_factory=dict)

    def becomes(self, state: RecordState, until: float = NOT_HELD) -> None:
        """Set the record's state, which lasts at least until ``until``."""
        self.state, self.until = state, until

    def run_of(self, token: bytes, nonce: bytes) -> Run | None:
        """Return the run of this token and nonce."""
        return next((run for run in self.runs if run.nonce == nonce and run.token == int(token)), None)

    def claim_numbered(self, number: int) -> Claim:
        """Return the claim of this number; a new one if no claim of this history has it."""
        known = next((claim for claim in self.claims if claim.number == number), None)
        return known or self.add_claim(b"", number)

    def add_claim(self, claim_id: bytes, number: int) -> Claim:
        """Record a claim."""
        self.claims.append(claim := Claim(claim_id, number))
        return claim


_REPORTED = (End.COMMITTED, End.REJECTED, End.FAILED)


@dataclass(slots=True)
class Verdict:
    """The faults found, and how each claim and each run of each key ended, in order."""

    faults: list[str] = field(default_factory=list)
    claims: dict[str, list[str]] = field(default_factory=dict)
    runs: dict[str, list[str]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def reported_runs(self) -> Counter[str]:
        """Return how often workers should have reported each end of a run."""
        ends = Counter(outcome for outcomes in self.runs.values() for outcome in outcomes)
        return Counter({end: n for end, n in ends.items() if end.startswith(_REPORTED)})


def check_history(history: History) -> Verdict:
    """Check a complete history; call it when no refresh is in progress any more."""
    checker = _Checker()
    for event in history:
        if isinstance(event, Note):
            checker.take_note(event)
        elif event.is_step and event.key:
            checker.take_step(event)
    return checker.verdict(time.monotonic())


class _Checker:
    def __init__(self) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self._records_may_go = False
        self._was_rolled_back = False
        self._faults: list[str] = []
        self._skipped: dict[bytes, str] = {}
        self._steps: dict[str, Callable[[Ledger, Exchange], None]] = {
            "claim": self._claim,
            "unclaim": self._unclaim,
            "acquire": self._acquire,
            "renew": self._renew,
            "commit": self._commit,
            "retry": self._retry,
            "fail": self._fail,
            "hand_back": self._hand_back,
            "invalidate": self._invalidate,
        }

    def take_note(self, note: Note) -> None:
        if note.what is Happened.WROTE:
            self._ledger(note.key).version_written = note.version
            return
        if note.what in {Happened.RECORDS_EVICTED, Happened.EVICTION_ENDED}:
            self._records_may_go = note.what is Happened.RECORDS_EVICTED
        self._was_rolled_back |= note.what is Happened.ROLLED_BACK
        for ledger in self._ledgers.values():
            ledger.until = NOT_HELD
            if note.what in {Happened.EMPTIED, Happened.ROLLED_BACK}:
                ledger.becomes(RecordState.IDLE)
                ledger.committed_token, ledger.invalidated = 0, None
            if note.what is Happened.EMPTIED:
                for run in ledger.runs:
                    run.is_void = True

    def take_step(self, step: Exchange) -> None:
        ledger = self._ledger(step.key)
        if step.reply is PENDING:
            ledger.until = NOT_HELD  # it may have been done
        elif step.is_answered and step.name in self._steps:
            self._steps[step.name](ledger, step)

    def verdict(self, now: float) -> Verdict:
        verdict = Verdict(self._faults, skipped=Counter(self._skipped.values()))
        for key, ledger in self._ledgers.items():
            runs = [self._end_of_run(ledger, run, now) for run in ledger.runs]
            claims = [self._end_of_claim(ledger, claim, now) for claim in ledger.claims]
            verdict.runs[key], verdict.claims[key] = [*map(str, runs)], [*map(str, claims)]
        return verdict

    def _ledger(self, key: str) -> Ledger:
        return self._ledgers.setdefault(key, Ledger(key))

    def _complain(self, ledger: Ledger, fault: str) -> None:
        self._faults.append(f"{ledger.key}: {fault}")

    def _is_held(self, ledger: Ledger, step: Exchange) -> bool:
        return ledger.state in _HELD and step.replied_at < ledger.until and not self._records_may_go

    def _claim(self, ledger: Ledger, step: Exchange) -> None:
        if step.reply[0] != ClaimStatus.CLAIMED:
            return
        claim_id, number = step.args[0], int(step.reply[6])
        if ledger.claim is not None and ledger.claim.id == claim_id:
            return  # the same claim again
        passes_cooling = ledger.state is RecordState.COOLING and step.args[4] == b"1"
        if self._is_held(ledger, step) and not passes_cooling:
            self._complain(ledger, f"claimed while {ledger.state}")
        ledger.claim = ledger.add_claim(claim_id, number)
        ledger.becomes(RecordState.QUEUED, step.sent_at + int(step.args[2]) / 1e6)

    def _unclaim(self, ledger: Ledger, step: Exchange) -> None:
        if step.reply == 1 and ledger.claim is not None and ledger.claim.id == step.args[0]:
            ledger.claim.outcome = Outcome(End.WITHDRAWN)
            ledger.becomes(RecordState.IDLE)

    def _acquire(self, ledger: Ledger, step: Exchange) -> None:
        status, state, left_us, token = step.reply[0], step.reply[1], int(step.reply[2]), int(step.reply[3])
        nonce, number, ticket = step.args[0], int(step.args[1]), step.args[2]
        if status != AcquireStatus.ACQUIRED:
            why = "already_fresh" if status == AcquireStatus.ALREADY_FRESH else state.decode()
            ledger.skips[number] = why
            self._skipped[nonce] = str(Outcome(End.SKIPPED, why))
            return
        until = step.sent_at + left_us / 1e6
        if ledger.run is not None and (ledger.run.nonce, ledger.run.token) == (nonce, token):
            return  # the same acquire again; with another token it met no record, which had been evicted
        has_ticket = ledger.state is RecordState.RETRYING and ticket == ledger.ticket
        if self._is_held(ledger, step) and ledger.state is not RecordState.QUEUED and not has_ticket:
            self._complain(ledger, f"acquired while {ledger.state}")
        if any(run.token >= token for run in ledger.runs) and not self._was_rolled_back:
            self._complain(ledger, f"token {token} is not above those drawn before")
        serves_current = ledger.state is RecordState.QUEUED or has_ticket
        claim = ledger.claim if serves_current and ledger.claim else ledger.claim_numbered(number)
        ledger.run = Run(nonce, token, claim)
        claim.runs.append(ledger.run)
        ledger.runs.append(ledger.run)
        ledger.becomes(RecordState.RUNNING, until)

    def _renew(self, ledger: Ledger, step: Exchange) -> None:
        run = ledger.run_of(*step.args[:2])
        if int(step.reply) > 0 and run is ledger.run and ledger.state is RecordState.RUNNING:
            ledger.until = step.sent_at + int(step.reply) / 1e6

    def _commit(self, ledger: Ledger, step: Exchange) -> None:
        run, status = ledger.run_of(*step.args[:2]), CommitStatus(step.reply)
        if run is None:
            self._complain(ledger, f"a commit of a run that nobody acquired: {status.name.lower()}")
        elif not status.accepted:
            self._end(ledger, run, Outcome(End.REJECTED, status.name.lower()))
        elif run.outcome is None or run.outcome.end is not End.COMMITTED:
            self._accepted(ledger, run, step, fresh=status is CommitStatus.ACCEPTED)

    def _accepted(self, ledger: Ledger, run: Run, step: Exchange, *, fresh: bool) -> None:
        if run.is_void:
            self._complain(ledger, f"token {run.token} committed, though its record was lost")
        if run is not ledger.runs[-1] and not self._was_rolled_back:
            self._complain(ledger, f"token {run.token} committed, though {ledger.runs[-1].token} has acquired")
        if run.token <= ledger.committed_token:
            self._complain(ledger, f"token {run.token} committed after {ledger.committed_token}")
        version = version_in(step.args[2], step.key)
        known = ledger.version_written if version is None else version
        stored = Observation(ledger.key, run.token, known, fresh, step.replied_at)
        if ledger.invalidated and (why := contradiction(stored, ledger.invalidated)):
            self._complain(ledger, f"stored: {why}")
        ledger.committed_token = max(ledger.committed_token, run.token)
        self._end(ledger, run, Outcome(End.COMMITTED, "" if fresh else "as stale"))

    def _retry(self, ledger: Ledger, step: Exchange) -> None:
        ticket, pause_us, kind = step.args[2:5]
        if self._ends_by(ledger, step, Outcome(End.RETRIED, kind.decode())):
            ledger.ticket = ticket
            ledger.becomes(RecordState.RETRYING, step.sent_at + int(pause_us) / 1e6)

    def _fail(self, ledger: Ledger, step: Exchange) -> None:
        cooling_us, kind = step.args[2:4]
        if self._ends_by(ledger, step, Outcome(End.FAILED, kind.decode())):
            ledger.becomes(RecordState.COOLING, step.sent_at + int(cooling_us) / 1e6)

    def _hand_back(self, ledger: Ledger, step: Exchange) -> None:
        run = ledger.run_of(*step.args[:2])
        if run is not None and self._ends_by(ledger, step, Outcome(End.HANDED_OVER)):
            ledger.claim = run.claim
            run.claim.id = run.nonce
            ledger.becomes(RecordState.QUEUED, step.sent_at + int(step.args[2]) / 1e6)

    def _ends_by(self, ledger: Ledger, step: Exchange, outcome: Outcome) -> bool:
        """Record the end of a run by a step other than a commit; return False if it was refused, or done before."""
        run = ledger.run_of(*step.args[:2])
        was_done = step.reply[0] if isinstance(step.reply, list) else step.reply
        if run is None:
            self._complain(ledger, f"{step.name} of a run that nobody acquired")
            return False
        if run.outcome == outcome:
            return False  # the same step again
        self._end(ledger, run, outcome if was_done else Outcome(End.REJECTED, "superseded"))
        return bool(was_done)

    def _end(self, ledger: Ledger, run: Run, outcome: Outcome) -> None:
        if run.outcome is not None and outcome.end is End.REJECTED:
            return  # it had ended already, so its worker was refused
        if run.outcome is not None and run.outcome != outcome:
            self._complain(ledger, f"token {run.token} ended as {run.outcome} and as {outcome}")
        run.outcome = outcome
        if run is ledger.run and ledger.state is RecordState.RUNNING:
            ledger.becomes(RecordState.IDLE)

    def _invalidate(self, ledger: Ledger, step: Exchange) -> None:
        hard, written = step.args[0] == b"1", ledger.version_written
        ledger.invalidated = Invalidated(ledger.key, written, int(step.reply), hard, step.sent_at)
        if ledger.state in _FREED_BY_INVALIDATION:
            ledger.becomes(RecordState.INVALIDATED)

    def _end_of_run(self, ledger: Ledger, run: Run, now: float) -> Outcome:
        if run.outcome is None:
            if run is ledger.run and ledger.state is RecordState.RUNNING and now < ledger.until:
                self._complain(ledger, f"token {run.token} has neither ended nor run out")
            run.outcome = Outcome(End.LOST if run.is_void else End.EXPIRED)
        return run.outcome

    def _end_of_claim(self, ledger: Ledger, claim: Claim, now: float) -> Outcome:
        if claim.outcome is not None:
            return claim.outcome
        for run in claim.runs:
            if run.outcome is not None and run.outcome.end is End.COMMITTED:
                return run.outcome
        last = claim.runs[-1].outcome if claim.runs else None
        if last is not None and last.end not in GOES_ON:
            return last
        if claim is ledger.claim and ledger.state in _HELD and now < ledger.until:
            self._complain(ledger, f"claim {claim.number} has neither ended nor run out")
        if claim.number in ledger.skips:
            return Outcome(End.SKIPPED, ledger.skips[claim.number])
        return Outcome(End.EXPIRED)


def version_in(entry: bytes, key: str) -> int | None:
    """Return the version in an entry of `versioned_queries`; None in any other."""
    header = decode_header(entry, bytes.fromhex(key.strip("{}").rpartition(":")[2]))
    value = msgspec.msgpack.decode(entry[header.length :]) if not header.is_compressed else None
    return value.get("version") if isinstance(value, dict) else None
