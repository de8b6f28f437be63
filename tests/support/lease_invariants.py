"""Invariants of a key (docs/explanation/guarantees.md, I1 to I3 and I6), checked by observation alone.

Without a model: a wrong model can't hide a violation.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tests.support.lease_world import StepSnapshot

RunId: TypeAlias = tuple[int, bytes]
NUMBERS = (
    "since", "until", "number", "claim_number", "claimed_at", "token", "limit", "generation", "hard", "attempts",
    "published", "republished",
)  # fmt: skip
ACCEPTED, ACCEPTED_AS_STALE = 1, 2


class Watch:
    """Keeps the history of one key: acquires, commits and invalidations, by moment."""

    def __init__(self) -> None:
        self.moment = 0
        self.runs: list[RunId] = []  # in the order of their acquires
        self.began: dict[RunId, int] = {}
        self.stored: set[RunId] = set()
        self.soft_at = self.hard_at = -1
        self.highest = 0  # of all numbers in entry and record at the last look
        self.entry_token = 0
        self.planted_over: int | None = None

    def copy(self) -> Watch:
        """Return an independent copy of the history."""
        other = Watch()
        vars(other).update(
            {name: value.copy() if hasattr(value, "copy") else value for name, value in vars(self).items()}
        )
        return other

    def acquired(self, run: RunId) -> None:
        if run in self.began:
            assert run == self.runs[-1], "an acquire that is repeated is the same run only while nobody else runs"
            return
        assert run[0] > self.highest, "a token is larger than any number known before"
        self.runs.append(run)
        self.began[run] = self.moment

    def invalidated(self, generation: int, *, hard: bool) -> None:
        assert generation > self.highest, "a generation is larger than any number known before"
        self.soft_at = self.moment
        if hard:
            self.hard_at = self.moment

    def committed(self, run: RunId, status: int, before: StepSnapshot, after: StepSnapshot) -> None:
        is_accepted = status in {ACCEPTED, ACCEPTED_AS_STALE}
        if before.raw_entry == after.raw_entry:
            assert not is_accepted or run in self.stored, "accepted means stored"
            return
        assert is_accepted
        assert run == self.runs[-1], "I1: only the newest of all who ever acquired"
        assert run not in self.stored, "I1: once"
        assert self.began[run] > self.hard_at, "I3: nothing read before a hard invalidation is stored"
        assert (status == ACCEPTED) == (self.began[run] > self.soft_at), "I3: read before a soft one, so stale"
        if status == ACCEPTED:
            assert after.record.get("state", b"queued") == b"queued", "I6: the record goes with the commit"
        self.stored.add(run)

    def planted(self, token: int) -> None:
        """Record an entry that the environment stored: an older release, or data from before."""
        self.planted_over, self.entry_token = self.entry_token, token

    def look(self, seen: StepSnapshot) -> None:
        self.moment += 1
        assert [name for name in NUMBERS if not seen.record.get(name, b"0").isdigit()] == [], "no scientific notation"
        assert seen.entry_ms != -1, "I6: every entry has a TTL"
        assert seen.record_ms != -1, "I6: every record has its retention"
        entry = frozen_fields(seen.raw_entry)
        # Without the claim's: a message from before a data loss and a clock step back has one from that time.
        drawn = [int(seen.record.get(name, 0)) for name in ("number", "token", "generation", "hard")]
        self.highest = max(*drawn, *(entry[:2] if entry else ()))
        if entry is None:
            if self.planted_over is not None:
                # No run has stored it: a run that began before it may still be the newest.
                self.entry_token, self.planted_over = self.planted_over, None
            # A record that has drawn no number beside an entry, which the environment stored, knows nothing of it. Each
            # entry that was committed has a smaller token than any record after it.
            self.entry_token = self.entry_token if max(drawn) > self.entry_token else 0
            return
        token, generation, _, nonce = entry
        assert token >= self.entry_token, "I2: an entry's token never goes back"
        if token > self.entry_token:
            self.entry_token, self.planted_over = token, None
        began = self.began.get((token, nonce))
        if began is not None:
            assert began > self.hard_at, "I3: gone with a hard invalidation"
            assert (generation > token) == (began < self.soft_at), "I3: stale if, and only if, read before one"


def frozen_fields(raw: Any) -> tuple[int, int, int, bytes] | None:
    """Return token, generation, soft expiry and nonce of an entry in the layout of every release; None for others."""
    if not isinstance(raw, bytes) or len(raw) < 52 or raw[:2] != b"\xc7X":
        return None
    token, generation, soft_expiry = struct.unpack(">QQq", raw[20:44])
    return (token, generation, soft_expiry, raw[44:52]) if max(token, generation) < 2**53 else None
