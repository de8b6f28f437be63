"""The ledger of a history, key by key: claims, runs, and how each ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from api_client.protocol.lease import RecordState


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
NOT_HELD: Final = float("-inf")


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
    generation: int = 0
    version_written: int = 0
    version_floor: int = 0
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
