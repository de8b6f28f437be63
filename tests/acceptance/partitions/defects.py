"""Defects put in by hand, each with the rule that its histories break.

HISTORY_DEFECT names one: ``python -m tests.acceptance.partitions.defects ROLE …`` and ``celery -A`` this module are
then the programs and the worker that have it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from api_client.local.tracking import InvalidationStream
from api_client.protocol import keys, params
from api_client.protocol.clock import RedisClock
from api_client.protocol.entry import Header
from api_client.transport import scripts
from api_client.transport.sentinel import SentinelResolver
from refresher.flow import refresh, registration
from refresher.flow.renewals import Renewals
from tests.acceptance.partitions import programs, worker

ITS_CLOCK_LAGS_US: Final = 30_000_000


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect. ``while_`` is what has to happen meanwhile, without which it does no harm.

    ``replaced`` has what the Lua of a step (or of all: the prelude) is changed to, and ``apply`` patches Python.
    """

    rule: str
    step: str = ""
    replaced: Mapping[str, str] = field(default_factory=dict)
    apply: Callable[[], None] = lambda: None
    while_: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    pause_seconds: float = 0.05
    hard_share: float = 0.1
    only_in_readers: bool = False

    def put_in(self) -> None:
        """Change this process."""
        self.apply()
        source = scripts.source

        def changed(name: str) -> str:
            text = source(name)
            for right, wrong in self.replaced.items() if self.step in {name, "prelude"} else ():
                assert right in text, f"{self.step} has no {right}"
                text = text.replace(right, wrong)
            return text

        scripts.source = changed  # type: ignore[assignment]


def read_tag_clock_after_the_load() -> None:
    invalidate_call = registration._invalidate_call  # noqa: SLF001 - the step that compares

    def late(run: Any, replies: Any, settings: Any) -> Any:
        return invalidate_call(replace(run, tag_clock=max(reply.last for reply in replies)), replies, settings)

    registration._invalidate_call = late  # noqa: SLF001


def register_nothing() -> None:
    refresh.register = lambda *_: {}  # type: ignore[attr-defined]


def trust_the_clock_of_the_host() -> None:
    at_us = RedisClock.at_us
    RedisClock.at_us = lambda clock, now: at_us(clock, now) - ITS_CLOCK_LAGS_US  # type: ignore[method-assign]
    Header.is_ahead = lambda *_: False  # type: ignore[method-assign]


def stay_with_the_first_master() -> None:
    ask = SentinelResolver.get_master_address
    first: list[Any] = []

    def address(resolver: SentinelResolver) -> Any:
        first[:] = first or [ask(resolver)]
        return first[0]

    SentinelResolver.get_master_address = address  # type: ignore[method-assign]
    SentinelResolver.has_moved_from = lambda *_: False  # type: ignore[method-assign]
    SentinelResolver.poll = lambda _: None  # type: ignore[method-assign]


def hear_no_invalidation() -> None:
    listen = InvalidationStream.listen
    InvalidationStream.listen = lambda stream: ([], listen(stream)[1])  # type: ignore[method-assign]


def make_one_key_of_two_groups() -> None:
    canonical = params.canonical_params

    def mixed_up(query: str, params: Any) -> str:
        even = {name: value - value % 2 if name == "group" else value for name, value in params.items()}
        return canonical(query, even)

    keys.canonical_params = mixed_up  # type: ignore[assignment, attr-defined]


def never_renew() -> None:
    Renewals._renew = lambda *_: None  # type: ignore[method-assign] # noqa: SLF001
    worker.MAX_LOAD_SECONDS = 3.0


FENCE: Final = "if record.state == nil or text(record.token) ~= token or record.nonce ~= nonce then"
DEFECTS: Final = {
    "no fence at commit": Defect(
        "I1", "commit", {FENCE: "if false then", "if entry and entry.token >= record.token then": "if false then"},
        while_="workers pause",
    ),
    "a claim while a run is under way": Defect("load", "claim", {"local free = not record.state": "local free = true"}),
    "a lease that is not renewed": Defect("load", apply=never_renew),
    "a commit that overlooks invalidations": Defect(
        "I3", "commit", {"local stale = record.generation > record.token": "local stale = false"}
    ),
    "a soft invalidation that leaves the entry": Defect("I3", "invalidate", {"elseif entry then": "elseif false then"}),
    "a hard invalidation that is a soft one": Defect(
        "I3", "invalidate", {"if hard then\n  redis.call('DEL'": "if false then\n  redis.call('DEL'"}
    ),
    "a tag clock read after the load": Defect("I3", apply=read_tag_clock_after_the_load),
    "an entry that is not registered with its tags": Defect("I3", apply=register_nothing),
    "no clock tolerance": Defect("ttl", apply=trust_the_clock_of_the_host, pause_seconds=3.0),
    # A hard invalidation would have the key loaded by a reader that waits for it.
    "a claim that outlives its message": Defect(
        "I4", "claim", {"text(now + queue_ttl_us)": "text(now + 1000 * queue_ttl_us)"},
        while_="messages are lost", hard_share=0.0,
    ),
    "numbers drawn without entry and clock": Defect(
        "I3", "prelude",
        {
            "math.max(now, record.number + 1)": "record.number + 1",
            "if entry then\n    number": "if false then\n    number",
        },
    ),
    "a record that a commit leaves": Defect(
        "I6", "commit", {"redis.call('DEL', KEYS[2])": "redis.call('PERSIST', KEYS[2])"}
    ),
    "one key for two groups": Defect("key", apply=make_one_key_of_two_groups),
    "a tier that hears no invalidation": Defect(
        "I3", apply=hear_no_invalidation, env={"CACHE_LOCAL_MAX_AGE": "60s"}
    ),
    "a reader that stays with a demoted master": Defect(
        "I3", apply=stay_with_the_first_master, while_="the master is cut off", only_in_readers=True
    ),
}  # fmt: skip

if name := os.environ.get("HISTORY_DEFECT"):
    DEFECTS[name].put_in()
if "HISTORY_LOG" in os.environ:
    app = worker.app
if __name__ == "__main__":
    programs.main()
