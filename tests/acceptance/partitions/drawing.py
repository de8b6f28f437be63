"""The smallest history that breaks a rule, and its picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

from tests.acceptance.partitions.checker import Bounds, Finding, Verdict, check
from tests.acceptance.partitions.events import Event

FAULTS: Final = ("fault", "heal")
PLACE: Final = ("kind", "host", "process", "start", "end", "ok")
NUMBER: Final = re.compile(r"\b\d{12,}\b")
CONTEXT_SECONDS: Final = 1.0
MAX_LINES: Final = 40

COLOURS: Final = {
    "read": "#1f77b4", "write": "#8c564b", "invalidate": "#d62728", "kept": "#d62728", "load": "#2ca02c",
    "acquire": "#9467bd", "commit": "#ff7f0e", "fault": "#000", "heal": "#000", "quiet": "#000",
}  # fmt: skip
LINE, TOP, LEFT, RIGHT, WIDTH = 20, 64, 230, 460, 1_300
"""Pixels: the height of a line, the first one's place, the ends of the time axis, and the whole width."""


def shrink(events: Sequence[Event], violation: Finding, bounds: Bounds) -> list[Event]:
    """Return the fewest events that, with all faults, show the same violation (delta debugging)."""
    faults = [event for event in events if event["kind"] in FAULTS]

    def breaks_it(some: Sequence[Event]) -> bool:
        found = check([*faults, *some], bounds).violations
        return any((one.rule, one.sentence) == (violation.rule, violation.sentence) for one in found)

    others = (event for event in events if event["kind"] not in FAULTS)
    return smallest([event for event in others if event.get("key", violation.key) == violation.key], breaks_it)


def smallest(events: Sequence[Event], holds: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """Return a part of the events for which ``holds`` does, and no more does without any one of them (ddmin)."""
    parts = 2
    left = list(events)
    while len(left) > 1:
        size = -(-len(left) // parts)
        without = (left[:place] + left[place + size :] for place in range(0, len(left), size))
        smaller = next((some for some in without if some and holds(some)), None)
        if smaller is not None:
            left, parts = smaller, max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(2 * parts, len(left))
    return left


def around(events: Iterable[Event], shown: Sequence[Event]) -> list[Event]:
    """Return the shown events with others of their key, and the faults, of the same time: those nearest to them."""
    key = next((event["key"] for event in reversed(shown) if "key" in event), None)
    nodes = set().union(*(event.get("versions", ()) for event in shown))
    begin, end = min(event["start"] for event in shown), max(event["end"] for event in shown)

    def distance(event: Event) -> float:
        return min(abs(event["start"] - one["start"]) for one in shown)

    def concerns(event: Event) -> bool:
        if event["kind"] in FAULTS or event in shown:
            return event in shown or begin - CONTEXT_SECONDS <= event["end"]
        is_near = begin - CONTEXT_SECONDS <= event["end"] and event["start"] <= end + CONTEXT_SECONDS
        is_own = event.get("key") == key if "key" in event else bool(nodes & event.get("versions", {}).keys())
        return is_near and is_own

    found = sorted((event for event in events if concerns(event)), key=distance)[:MAX_LINES]
    return sorted(found, key=lambda event: event["start"])


def text_of(event: Event) -> str:
    """Return what an event says beside its time and place: what it is for, versions of nodes, and what is not usual."""
    about = {name: value for name, value in event.items() if name not in PLACE}
    said = [str(about.pop(name)) for name in ("key", "tag", "name") if name in about]
    versions = [f"{node}={version}" for node, version in about.pop("versions", {}).items()]
    more = [name if value is True else f"{name}={value}" for name, value in about.items() if value]
    return " ".join([event["kind"], *said, *versions, *more])


def in_order(text: str) -> str:
    """Return a text with tokens and generations, which nobody can compare by eye, as #1, #2 … in their order."""
    numbers = sorted({int(number) for number in NUMBER.findall(text)})
    return NUMBER.sub(lambda found: f"#{numbers.index(int(found[0])) + 1}", text)


def drawn(events: Sequence[Event], shown: Sequence[Event], title: str) -> str:
    """Return an SVG of events, a line each in the order of their begins: host, time, text.

    Those of ``shown`` stand out, and so do the times of faults.
    """
    timed = [event for event in events if event["kind"] not in FAULTS] or list(events)
    begin, end = min(event["start"] for event in timed), max(event["end"] for event in timed)
    height = TOP + LINE * len(events)

    def x(at: float) -> float:
        return LEFT + (min(max(at, begin), end) - begin) / max(end - begin, 1e-3) * (RIGHT - LEFT)

    def bar(event: Event, y: float, high: float, fill: str) -> str:
        return _box(x(event["start"]), y, max(x(event["end"]) - x(event["start"]), 3), high, fill)

    rows = [(TOP + LINE * number, event) for number, event in enumerate(events)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="monospace">',
        _box(0, 0, WIDTH, height, "#fff") + _text(10, 20, title),
        _text(LEFT, TOP - 24, f"0 … {end - begin:.3f} s; #1, #2 …: tokens and generations in their order"),
        *(_box(0, y - 14, WIDTH, LINE, "#fff3cd") for y, event in rows if event in shown),
        *(bar(event, TOP - 14, height, "#f8d7da") for event in events if event["kind"] == "fault"),
    ]
    for y, event in rows:
        ink, about = "#000" if event in shown else "#666", f"{event['start'] - begin:+8.3f} {event['process']}"
        parts += [
            _box(LEFT, y - 4, RIGHT - LEFT, 1, "#ddd") + bar(event, y - 9, 10, COLOURS[event["kind"]]),
            _text(10, y, about, ink) + _text(RIGHT + 20, y, text_of(event), ink),
        ]
    return in_order("\n".join([*parts, "</svg>\n"]))


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'


def _text(x: float, y: float, text: str, fill: str = "#000") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="{fill}">{escape(text)}</text>'


def draw_violations(verdict: Verdict, folder: Path, most: int = 5) -> list[Path]:
    """Write a picture of the first violation of each rule; return their paths."""
    first = {finding.rule: finding for finding in reversed(verdict.violations)}
    paths = []
    for rule, finding in list(first.items())[:most]:
        shown = shrink(verdict.history.events, finding, verdict.history.bounds)
        path = folder / f"{rule}.svg"
        title = f"{rule}: {finding.sentence}"
        path.write_text(drawn(around(verdict.history.events, shown), shown, title), encoding="utf-8")
        paths.append(path)
    return paths
