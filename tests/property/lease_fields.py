"""State of the model of the lease record: a key's record fields, and its entry."""

from __future__ import annotations

from dataclasses import dataclass

LINES = ("bookmarks", "bookmarks_before", "claim_bookmarks")


@dataclass(frozen=True)
class Run:
    """The run that holds, or last held, the lease."""

    token: int
    nonce: bytes
    limit: int


@dataclass(frozen=True)
class Record:
    """None is a field that is not there. ``gone_at_ms`` is when Redis drops the record."""

    state: str
    gone_at_ms: int = 0
    since: int | None = None
    until: int | None = None
    number: int = 0
    claim: str | bytes | None = None
    claim_number: int | None = None
    claimed_at: int | None = None
    run: Run | None = None
    ticket: str | None = None
    generation: int | None = None
    hard: int | None = None
    bookmarks: tuple[str, ...] | None = None
    bookmarks_before: tuple[str, ...] | None = None
    bookmarks_since: int | None = None
    claim_bookmarks: tuple[str, ...] | None = None
    cools_only_bookmarks: int | None = None
    kind: str | None = None
    attempts: int | None = None
    ended_by: bytes | None = None
    failures: int | None = None
    failures_until: int | None = None
    failed_token: int | None = None
    overtook: bytes | None = None
    in_place: bytes | None = None
    why: str | None = None
    published: int | None = None
    republished: int | None = None
    by: str | None = None

    def fields(self) -> dict[str, bytes]:
        """Return the expected reply to HGETALL."""
        run = self.run
        there = {name: value for name, value in vars(self).items() if name not in {"run", "gone_at_ms", *LINES}}
        there |= {"token": run and run.token, "nonce": run and run.nonce, "limit": run and run.limit}
        there |= {name: "\n".join(lines) for name in LINES if (lines := getattr(self, name)) is not None}
        return {
            name: value if isinstance(value, bytes) else str(value).encode()
            for name, value in there.items()
            if value is not None
        }


@dataclass(frozen=True)
class StoredEntry:
    """An entry whose frozen fields can be read."""

    token: int
    nonce: bytes
    soft_expiry: int
    gone_at_ms: int
    generation: int = 0


def merge(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Return the bookmarks of both lists; ``new`` is not added if ``old`` contains it as it is, side by side."""
    there = any(old[at : at + len(new)] == new for at in range(len(old)))
    return old if not new or there else old + new
