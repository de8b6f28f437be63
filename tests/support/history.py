"""History of requests to Redis and their replies, kept outside the processes that a test kills.

`RecordingProxy` writes it, `check_history` reads it. Lease steps are in the order in which Redis ran them; times are
this process's monotonic clock, in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import hiredis

from api_client.protocol.lease import Call
from api_client.transport.scripts import SCRIPTS, by_hash, by_text
from tests.support.steps import STEPS

PENDING: Final = object()
"""The reply of an exchange without one, so far or forever: whether Redis ran it is not known."""


MAX_LINES: Final = 60
MAX_ARG_BYTES: Final = 24
"""How many events of a key are shown, and how much of an argument."""


class Happened(StrEnum):
    """Actions of a test on the servers, as far as the checker has to know them."""

    EMPTIED = "emptied"
    """Redis has lost all data."""
    ROLLED_BACK = "rolled back"
    """Redis has an older state, from before the last steps, or may have: a failover, an older file."""
    RECORDS_EVICTED = "records evicted"
    """From here on a record may be evicted at any time …"""
    EVICTION_ENDED = "eviction ended"
    """… until here."""
    CLOCK_MOVED = "clock moved"
    """Redis' clock was set: deadlines may have passed, or be later."""
    WROTE = "wrote"
    """The source has a newer value. ``key`` and ``version`` say which."""


@dataclass(slots=True)
class Exchange:
    """One request and its reply. ``name`` is that of a step of the lease record, else the command's."""

    name: str
    command: tuple[bytes, ...]
    sent_at: float = 0.0
    replied_at: float = 0.0
    reply: Any = PENDING

    def __str__(self) -> str:
        args = self.args if self.is_step else self.command[1:]
        reply = "no reply" if self.reply is PENDING else f"{self.reply} after {self.replied_at - self.sent_at:.3f} s"
        return f"{self.name} {[arg[:MAX_ARG_BYTES] for arg in args]}: {reply}"

    @property
    def key(self) -> str:
        """Return the part that entry and record of a key share: ``{query:version:digest}``; else an empty text."""
        return key_in(self.command[3]) if self.is_step else ""

    @property
    def is_step(self) -> bool:
        """Return whether it is a lease step."""
        return self.name in STEPS

    @property
    def args(self) -> tuple[bytes, ...]:
        """Return a step's ARGV."""
        return self.command[3 + int(self.command[2]) :]

    @property
    def is_answered(self) -> bool:
        """Return whether Redis ran it and replied."""
        return self.reply is not PENDING and not isinstance(self.reply, hiredis.ReplyError)


@dataclass(frozen=True, slots=True)
class Note:
    """An action of a test."""

    what: Happened
    at: float
    key: str = ""
    version: int = 0


Event = Exchange | Note


@dataclass(slots=True)
class History:
    """All events, in order. Written by one thread at a time (appending is atomic), read at any time."""

    events: list[Event] = field(default_factory=list)

    def note(self, what: Happened, *, key: str = "", version: int = 0) -> None:
        """Record an action of the test, now."""
        self.events.append(Note(what, time.monotonic(), key, version))

    def exchanges(self, name: str, key: str = "") -> list[Exchange]:
        """Return the exchanges of one name, and of one key if it is given."""
        return [
            event
            for event in list(self.events)
            if isinstance(event, Exchange) and event.name == name and key in {"", event.key}
        ]

    def of_key(self, key: str) -> str:
        """Return the last events of a key, for people: a line each, with the seconds before the last one."""
        events = [event for event in self if event.key == key or (isinstance(event, Note) and not event.key)]
        return "\n".join(f"{_at(event) - _at(events[-1]):9.3f} {event}" for event in events[-MAX_LINES:])

    def __iter__(self) -> Iterator[Event]:
        return iter(list(self.events))


def _at(event: Event) -> float:
    return event.at if isinstance(event, Note) else event.sent_at


def key_in(redis_key: bytes | str) -> str:
    """Return the part of a Redis key in braces, with them."""
    text = redis_key.decode() if isinstance(redis_key, bytes) else redis_key
    return text[text.index("{") : text.index("}") + 1] if "{" in text else ""


def name_of(command: tuple[bytes, ...]) -> str:
    """Return the step that a command runs, or the command itself, in capitals."""
    first = command[0].decode().upper()
    if first in {"EVAL", "EVALSHA"}:
        return _STEPS.get(command[1], first)
    return first


def _steps() -> dict[bytes, str]:
    calls = [Call(name, (), (), _as_it_is) for name in SCRIPTS]
    return {str(command(call)[1]).encode(): call.script for call in calls for command in (by_hash, by_text)}


def _as_it_is(reply: Any) -> Any:
    return reply


_STEPS: Final = _steps()
