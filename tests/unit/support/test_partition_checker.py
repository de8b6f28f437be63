"""The checker of partitions: each rule finds what breaks it, a window excuses it, and what breaks none passes."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.acceptance.partitions.checker import Bounds, check, floors, loads_at_once, seconds_until_fresh
from tests.acceptance.partitions.drawing import around, drawn, in_order, shrink, smallest, text_of
from tests.acceptance.partitions.events import Event

BOUNDS = Bounds(settle=2.0, stale=5.0, ttl=4.0, cache_hosts=("r1", "r2", "r3"), names=lambda key: ["n1"])


def event(kind: str, start: float, end: float | None = None, *, process: str = "a-sync-0", **more: Any) -> Event:
    about = {"kind": kind, "host": process[0], "process": process, "start": start, "end": end or start + 0.1}
    return about | ({} if kind in {"fault", "heal", "quiet"} or "tag" in more else {"key": "g1"}) | more


def read(start: float, token: int, version: int, state: str = "fresh", **more: Any) -> Event:
    return event("read", start, token=token, state=state, **{"versions": {"n1": version}} | more)


def invalidated(start: float, version: int, **more: Any) -> Event:
    about = {"versions": {"n1": version}, "ok": True, "hard": False, "process": "w-writer-0"}
    return event("invalidate", start, **about | more)


def by_tag(start: float, version: int, **more: Any) -> Event:
    return invalidated(start, version, tag=["n1"], **more)


def commit(start: float, token: int, status: str = "accepted") -> Event:
    return event("commit", start, token=token, status=status, process="b-worker-1")


def acquire(start: float, token: int) -> Event:
    return event("acquire", start, token=token, process="c-worker-1")


def fault(start: float, *hosts: str) -> Event:
    return event("fault", start, name="split", hosts=list(hosts) or ["r1"])


def heal(start: float) -> Event:
    return event("heal", start)


OTHER = {"process": "b-async-0"}
LOCAL = {"process": "b-local-0", "allowed_seconds": 1.0}

BROKEN: list[tuple[str, str, list[Event]]] = [
    ("I1", "committed, though 6 had acquired", [acquire(1, 5), acquire(2, 6), commit(3, 5)]),
    ("I1", "committed after 6", [commit(1, 6), commit(2, 5)]),
    ("I1", "committed after 5", [commit(1, 5), commit(2, 5)]),
    ("I2", "for one client it went back from 7 to 6", [read(1, 7, 1), read(2, 6, 1)]),
    ("I2", "for one client", [read(1, 7, 1, **LOCAL), read(2, 6, 1, **LOCAL)]),
    ("I2", "it went back from 7 to 6", [read(1, 7, 1), read(2, 6, 1, **OTHER)]),
    ("I2", "it went back from 7 to 6", [commit(1, 7), read(2, 6, 1)]),
    ("I3", "as fresh", [by_tag(1, 2), read(2, 5, 1)]),
    ("I3", "as fresh", [by_tag(1, 2), read(2, 5, 1, "miss")]),
    ("I3", "although it was gone", [by_tag(1, 2, hard=True), read(2, 5, 1, "stale")]),
    ("I3", "as fresh", [by_tag(1, 2), read(2.2, 5, 1, **LOCAL)]),
    ("I3", "as fresh", [invalidated(1, 2, generation=6), read(2, 5, 2)]),
    ("I3", "has version 1 where 2", [invalidated(1, 2, generation=6), read(2, 7, 1, "stale")]),
    (
        "I3", "as fresh",
        [invalidated(1, 2, generation=6, replicated=True), fault(1.5, "r1"), heal(2), read(5, 5, 1)],
    ),
    ("ttl", "4.9 s after its commit", [commit(1, 5), read(6, 5, 1)]),
    ("I4", "5.4 s after it was read", [by_tag(1, 2), read(2, 5, 1, "stale"), read(7.5, 5, 1, "stale")]),
    (
        "I4", "5.4 s after it was read",
        [by_tag(1, 2), fault(1.5), read(2, 5, 1), heal(3), read(6, 5, 1, "stale"), read(11.5, 5, 1, "stale")],
    ),
    ("I4", "the read failed: WaitTimeout", [event("read", 1, error="WaitTimeout")]),
    ("I5", "took 11.0 s", [event("read", 1, 12, token=5, state="stale", versions={"n1": 1})]),
    ("I6", "cache:l1", [event("quiet", 1, left=["cache:l1:{x}"])]),
    ("key", "got the value of {'n2'}", [read(1, 5, 1, versions={"n2": 1})]),
    ("load", "twice at once", [event("load", 1, 2, process="b-worker-1"), event("load", 1.5, 3)]),
    ("load", "twice at once", [event("load", 1, 9), event("load", 2, 3), event("load", 4, 5)]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "sentence", "events"), BROKEN)
def test_what_breaks_a_rule_is_a_violation_of_it(rule: str, sentence: str, events: list[Event]) -> None:
    found = check(events, BOUNDS).violations
    assert {finding.rule for finding in found} == {rule}
    assert sentence in found[0].sentence


RIGHT: list[list[Event]] = [
    [acquire(1, 5), acquire(2, 6), commit(3, 5, "superseded"), commit(4, 6)],
    [acquire(1, 5), acquire(2, 6), commit(2.05, 5)],  # they overlap: either may have been first
    [commit(1, 6), commit(1.05, 5)],
    [event("read", 1, 3, token=7, state="fresh", versions={"n1": 1}), read(2, 6, 1)],
    [read(1, 7, 1), read(2, 6, 1, **LOCAL)],
    [read(1, 7, 1), read(2, 6, 1, key="g2")],
    [by_tag(1, 2), read(2, 5, 1, "stale")],
    [by_tag(1, 2), read(1.05, 5, 1)],  # it has not returned when the read begins
    [by_tag(1, 2, ok=False), read(2, 5, 1)],
    [by_tag(1, 2), read(2, 5, 1, **LOCAL)],
    [by_tag(1, 2), read(2, 5, 2)],
    [invalidated(1, 2, generation=6, key="g2"), read(2, 5, 1)],
    [invalidated(1, 2, generation=6), read(2, 7, 2)],
    [by_tag(1, 2), read(2, 5, 1, "stale"), read(7, 5, 1, "stale")],
    [event("load", 1, 2), event("load", 2, 3), event("load", 2.5, 3, key="g2")],
    [event("quiet", 1, left=[])],
    [commit(1, 5), read(5, 5, 1), read(6, 5, 1, "stale"), read(6, 5, 1, **LOCAL)],
]


@pytest.mark.parametrize("events", RIGHT)
def test_what_breaks_no_rule_passes(events: list[Event]) -> None:
    verdict = check(events, BOUNDS)
    assert verdict.violations == [], verdict
    assert not verdict.excused


@pytest.mark.parametrize(
    "events",
    [
        [acquire(1, 5), fault(1.5), acquire(2, 6), heal(3), commit(6, 5)],
        [fault(1), read(1.5, 7, 1), heal(2), read(6, 6, 1)],
        [by_tag(1, 2), fault(1.5), heal(2), read(6, 5, 1)],  # its replica lagged
        [by_tag(1, 2), fault(3), read(4, 5, 1), heal(5)],  # of another master
        [commit(1, 5), fault(1.5), heal(2), by_tag(6, 2), read(7, 5, 1)],  # its registration was lost
        [invalidated(1, 2, generation=6, replicated=False), fault(1.5), heal(2), read(6, 5, 1)],
        [invalidated(1, 2, generation=6, replicated=True), fault(1.5, "r1", "r2"), heal(2), read(6, 5, 1)],
        [event("load", 1, 9), fault(3), heal(4), event("load", 8, 9)],
        [fault(1), event("read", 2, error="CacheUnavailable")],
    ],
)
def test_a_window_excuses_what_a_fault_explains(events: list[Event]) -> None:
    verdict = check(events, BOUNDS)
    assert verdict.violations == [], verdict
    assert list(verdict.excused) == ["split"]
    assert "1 windows, which excuse {'split'" in str(verdict)


def test_what_reads_contradict_after_a_window_was_lost() -> None:
    done, stored = by_tag(1, 2), commit(1.2, 9)
    verdict = check([done, stored, fault(1.5), read(2, 5, 1), heal(3), read(6, 5, 1), read(7, 5, 1)], BOUNDS)
    assert (verdict.lost("invalidate"), verdict.lost("commit")) == ([done], [stored])
    assert "lost: 1 invalidations, 1 commits" in str(verdict)


def test_the_time_until_all_is_fresh_ends_with_the_last_read_of_what_should_have_been_replaced() -> None:
    read_since = [read(3, 5, 1), read(5, 5, 1, "stale"), read(8, 9, 2)]
    events = [by_tag(1, 2), fault(1.5), heal(2), *read_since, fault(9), heal(9.5)]
    assert seconds_until_fresh(check(events, BOUNDS).history) == [pytest.approx(3.0), 0.0]


def test_what_is_due_at_rest_excludes_what_may_have_been_lost() -> None:
    events = [event("kept", 1, tag=["n1"], versions={"n1": 3}), by_tag(2, 4), fault(4), by_tag(5, 5), heal(6)]
    assert floors(check(events, BOUNDS).history) == {"n1": 4}


def test_loads_of_one_key_at_once_are_counted() -> None:
    assert loads_at_once([event("load", 1, 9), event("load", 2, 3), event("load", 2.5, 4), event("load", 3.5, 5)]) == 3


def test_a_history_is_shrunk_to_what_breaks_the_rule_and_drawn_with_what_was_near() -> None:
    noise = [read(at / 10, 5, 1, key=f"g{at % 7 + 2}") for at in range(100)]
    near = commit(1.5, 5)
    events = sorted([by_tag(1, 2), near, read(2, 5, 1), read(3, 5, 1), *noise, fault(20)], key=lambda one: one["start"])
    violation = next(one for one in check(events, BOUNDS).violations if one.rule == "I3" and one.key == "g1")
    shown = shrink(events, violation, BOUNDS)
    assert [one["kind"] for one in shown] == ["invalidate", "read"]
    context = around(events, shown)
    assert near in context
    assert not any(one.get("key", "g1") != "g1" for one in context)
    texts = [element.text or "" for element in ET.fromstring(drawn(context, shown, "I3 <&>")).iter()]  # noqa: S314 - our own
    assert "I3 <&>" in texts
    assert any("read g1" in text for text in texts)


def test_shrinking_ends_where_nothing_more_can_be_left_out() -> None:
    events = [event("load", at) for at in range(100)]
    needed = [events[3], events[40], events[99]]
    assert smallest(events, lambda some: all(one in some for one in needed)) == needed


def test_a_picture_leaves_out_what_is_usual_and_shows_the_order_of_numbers() -> None:
    done = event("invalidate", 1, key="g1", versions={"n1": 3}, hard=False, ok=True, generation=1795888687231644)
    assert in_order(text_of(done) + " token 1795888668714066") == "invalidate g1 n1=3 generation=#2 token #1"
