"""Checker of a history: finds what breaks a rule, and what only a named window excuses.

A rule yields findings, each with the spans of time in which a fault would explain it: of a read, what it may have been
cut off from; of an invalidation that no replica had, how it may have been lost. A finding of which no span meets a
window, from a fault to some time after it was healed, is a violation. That a value is too old is decided by
`refresher.checker.oracle`, as for ``doctor --watch`` and the soak.

====  ==============================================================================================================
I1    a run commits once, and not after a later one has acquired
I2    a key's token never goes back: for one client; for all without an in-process tier, and after a commit
I3    no read that begins after an invalidation has returned gets an older value as fresh, after a hard one none at all
ttl   a value is not fresh past its TTL
I4    a value that is read, and older than an invalidation, is replaced within a bound, and reads succeed again
I5    no read takes longer than a bound
I6    at rest nothing is left but what belongs there
key   a value is that of its key
load  a key is loaded once at a time
====  ==============================================================================================================
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, groupby
from math import inf
from typing import Final, TypeAlias

from refresher.checker.oracle import Invalidated, Observation, contradiction
from tests.acceptance.partitions.events import Event
from tests.acceptance.partitions.worker import names_of

Span: TypeAlias = tuple[float, float]
ACCEPTED: Final = {"accepted", "accepted_as_stale"}


@cache
def nodes_of(key: str) -> frozenset[str]:
    """Return the nodes in the value of a key of `worker`'s query."""
    return frozenset(names_of(int(key[1:].partition("/")[0])))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a history is held to; in seconds.

    Attributes:
        lag: a replica may lack what Redis has acknowledged so long before a fault.
        settle: after a heal, until all see one master again.
        stale: how long a value that is read may stay older than an invalidation (I4); None: not checked.
        ttl: of the values, from their commit; None: not checked.
        read: how long a read may take.
        apart: a fault parts hosts, so that a read meanwhile may reach another master than the invalidation.
        cache_hosts: the hosts of the cache: where a fault takes two, a replica does not secure an invalidation.
        names: the nodes in the value of a key.
    """

    lag: float = 1.0
    settle: float = 15.0
    stale: float | None = None
    ttl: float | None = None
    read: float = 10.0
    apart: bool = True
    cache_hosts: Collection[str] = ()
    names: Callable[[str], Collection[str]] = nodes_of


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which a fault explains what else would be a violation."""

    name: str
    begin: float
    end: float
    hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Finding:
    """What breaks a rule; ``events`` show it, and a window that meets one of ``spans`` excuses it."""

    rule: str
    key: str
    sentence: str
    events: tuple[Event, ...]
    spans: tuple[Span, ...]


@dataclass(slots=True)
class Verdict:
    """The violations, and what windows excuse, by their names."""

    history: History
    violations: list[Finding] = field(default_factory=list)
    excused: dict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list))

    def lost(self, kind: str) -> list[Event]:
        """Return the invalidations, or commits, which reads have contradicted that began outside all windows."""
        found = {
            id(first): first
            for finding in (finding for findings in self.excused.values() for finding in findings)
            for first, last in [(finding.events[0], finding.events[-1])]
            if first["kind"] == kind and self.history.window([(last["start"], last["end"])]) is None
        }
        return list(found.values())

    def __str__(self) -> str:
        """The figures in some lines, then the violations."""
        counts = Counter(event["kind"] for event in self.history.events)
        excused = {name: dict(Counter(finding.rule for finding in found)) for name, found in self.excused.items()}
        lines = [
            f"events: {dict(counts)}; loads of a key at once: {loads_at_once(self.history.events)}",
            f"{len(self.history.windows)} windows, which excuse {excused}",
            f"lost: {len(self.lost('invalidate'))} invalidations, {len(self.lost('commit'))} commits",
            f"violations: {len(self.violations)}",
        ]
        return "\n".join([*lines, *(f"{finding.rule}: {finding.sentence}" for finding in self.violations[:20])])


class History:
    """The events of a history in the order of their begins, by kind, and its windows."""

    def __init__(self, events: Iterable[Event], bounds: Bounds) -> None:
        self.events = sorted(events, key=lambda event: event["start"])
        self.bounds = bounds
        self.by_kind: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            self.by_kind[event["kind"]].append(event)
        self.reads = [read for read in self.by_kind["read"] if "error" not in read]
        self.commits = [commit for commit in self.by_kind["commit"] if commit.get("status") in ACCEPTED]
        self.commit_of = {(commit["key"], commit["token"]): commit for commit in self.commits}
        self.windows = list(self._windows())

    def window(self, spans: Iterable[Span]) -> Window | None:
        """Return a window that meets one of the spans, the last one."""
        for begin, end in spans:
            # Windows end in the order of their begins, so none before this one ends later.
            place = bisect_right(self.windows, end, key=lambda window: window.begin)
            if place and self.windows[place - 1].end >= begin:
                return self.windows[place - 1]
        return None

    def may_be_lost(self, event: Event) -> tuple[Span, ...]:
        """Return the span in which a fault may have lost what Redis has acknowledged; none where replicas had it."""
        span = event["start"], event["end"]
        window = self.window([span])
        hosts = self.bounds.cache_hosts
        is_secured = event.get("replicated") and (window is None or len(window.hosts & set(hosts)) < 2)
        return () if is_secured else (span,)

    def _windows(self) -> Iterator[Window]:
        faults: list[Event] = []
        for event in self.events:
            if event["kind"] == "fault":
                faults.append(event)
            elif event["kind"] == "heal" and faults:
                yield self._window(faults, event["end"] + self.bounds.settle)
                faults = []
        if faults:
            yield self._window(faults, inf)

    def _window(self, faults: Sequence[Event], end: float) -> Window:
        hosts = frozenset(host for fault in faults for host in fault["hosts"])
        names = "+".join(dict.fromkeys(fault["name"] for fault in faults))
        return Window(names, faults[0]["start"] - self.bounds.lag, end, hosts)


def check(events: Iterable[Event], bounds: Bounds = Bounds()) -> Verdict:
    """Check a history by all rules."""
    history = History(events, bounds)
    verdict = Verdict(history)
    for rule in RULES:
        for finding in rule(history):
            window = history.window(finding.spans)
            (verdict.violations if window is None else verdict.excused[window.name]).append(finding)
    return verdict


def one_winner(history: History) -> Iterator[Finding]:
    """I1."""
    for first, last in going_back(history.by_kind["acquire"], history.commits):
        yield _pair("I1", first, last, f"token {last['token']} committed, though {first['token']} had acquired")
    for first, last in going_back(history.commits, history.commits, repeats=True):
        yield _pair("I1", first, last, f"token {last['token']} committed after {first['token']}")


def tokens_never_go_back(history: History) -> Iterator[Finding]:
    """I2."""
    by_client = lambda read: read["process"]  # noqa: E731 - the key of two calls
    for _, own in groupby(sorted(history.reads, key=by_client), by_client):
        reads = list(own)
        for first, last in going_back(reads, reads):
            yield _pair("I2", first, last, f"for one client it went back from {first['token']} to {last['token']}")
    reads = [read for read in history.reads if "allowed_seconds" not in read]
    for first, last in going_back([*history.commits, *reads], reads):
        if first["process"] != last["process"]:
            yield _pair("I2", first, last, f"it went back from {first['token']} to {last['token']}")


def going_back(
    firsts: Iterable[Event], lasts: Iterable[Event], *, repeats: bool = False
) -> Iterator[tuple[Event, Event]]:
    """Return each of ``lasts`` with the latest of ``firsts`` that ended before it and has a larger token.

    With ``repeats`` an equal one, too. A later event of the same key is in no order with one that it overlaps.
    """
    # Of those that have ended, per key: the tokens fall, so that the last one with a larger token is found at once.
    ended: dict[str, list[Event]] = defaultdict(list)
    turns = [(event["end"], 1, event) for event in firsts] + [(event["start"], 0, event) for event in lasts]
    for _, is_first, event in sorted(turns, key=lambda turn: turn[:2]):
        peaks = ended[event["key"]]
        if is_first:
            while peaks and peaks[-1]["token"] <= event["token"]:
                peaks.pop()
            peaks.append(event)
            continue
        larger = [peak for peak in peaks if peak["token"] > event["token"] - repeats]
        if larger:
            yield larger[-1], event


def no_stale_reads(history: History) -> Iterator[Finding]:
    """I3."""
    done_by_name = invalidations(history)
    latest: dict[tuple[object, ...], Event] = {}
    for read in history.reads:  # of reads that got the same, the last one counts
        at = read["start"] - read.get("allowed_seconds", 0.0)
        window = history.window([(at, read["end"])])
        latest[read["key"], read["token"], read["state"], "allowed_seconds" in read, window] = read
    for read in latest.values():
        for seen in observations(read):
            for done, event in due(done_by_name[seen.name], seen):
                why = contradiction(seen, done)
                if why is None:
                    continue
                apart = [(read["start"] - seen.allowed_seconds, read["end"])] if history.bounds.apart else []
                spans = [*apart, *history.may_be_lost(event)]
                commit = history.commit_of.get((read["key"], read["token"]))
                if "tag" in event and commit is not None:  # its registration with the tag may have been lost
                    spans += history.may_be_lost(commit)
                yield Finding("I3", read["key"], f"{seen.name} in {read['key']}: {why}", (event, read), tuple(spans))


def no_fresh_reads_past_the_ttl(history: History) -> Iterator[Finding]:
    """The rule of TTLs."""
    for read in history.reads if history.bounds.ttl is not None else ():
        commit = history.commit_of.get((read["key"], read["token"]))
        if commit is not None and read["state"] == "fresh":
            age = read["start"] - commit["end"] - read.get("allowed_seconds", 0.0)
            if age > (history.bounds.ttl or 0.0):
                sentence = f"{read['key']}: {age:.1f} s after its commit, token {read['token']} is fresh"
                yield Finding("ttl", read["key"], sentence, (commit, read), ((commit["start"], read["end"]),))


def observations(read: Event) -> Iterator[Observation]:
    """Return what a read shows of each of its nodes, for invalidations of the node's tag, and of the key."""
    for node, version in read["versions"].items():
        for name in (node, f"{read['key']}:{node}"):
            yield Observation(
                name, read["token"], version, read["state"] != "stale", read["start"], read.get("allowed_seconds", 0.0)
            )


@dataclass(frozen=True, slots=True)
class Done:
    """An acknowledged invalidation; the highest version and generation of its name until then, itself included."""

    said: Invalidated
    event: Event
    version: int
    generation: int


def invalidations(history: History) -> dict[str, list[Done]]:
    """Return the acknowledged invalidations by the names of `observations`, in the order of their returns."""
    found: dict[str, list[Done]] = defaultdict(list)
    for event in sorted(history.by_kind["invalidate"], key=lambda event: event["end"]):
        for node, version in event["versions"].items() if event["ok"] else ():
            name = node if "tag" in event else f"{event['key']}:{node}"
            said = Invalidated(name, version, event.get("generation", 0), event["hard"], event["end"])
            last = found[name][-1] if found[name] else Done(said, event, 0, 0)
            highest = max(last.version, version), max(last.generation, said.generation)
            found[name].append(Done(said, event, *highest))
    return found


def due(done: Sequence[Done], seen: Observation) -> Iterator[tuple[Invalidated, Event]]:
    """Return those that a value may contradict, the last one first: for a later version, or of a later generation."""
    place = bisect_left(done, seen.last_began, key=lambda one: one.said.returned_at)
    while place and (done[place - 1].version > seen.version or done[place - 1].generation >= seen.token):
        place -= 1
        yield done[place].said, done[place].event


def stale_values_are_replaced(history: History) -> Iterator[Finding]:
    """I4."""
    bound = history.bounds.stale
    if bound is None:
        return
    for read in history.by_kind["read"]:
        if "error" in read:
            spans = ((read["start"] - bound, read["end"]),)
            yield Finding("I4", read["key"], f"{read['key']}: the read failed: {read['error']}", (read,), spans)
    done_by_name = invalidations(history)
    first_of: dict[tuple[str, int], Event] = {}
    for read in history.reads:
        for seen in observations(read):
            # Versions grow, so the first invalidation for a later one is due the longest.
            done = done_by_name[seen.name]
            place = bisect_right(done, seen.version, key=lambda one: one.version)
            event = done[place].event if place < len(done) else None
            if event is None or event["end"] > read["start"] - read.get("allowed_seconds", 0.0):
                continue
            first = first_of.setdefault((f"{read['key']}:{seen.name}", seen.version), read)
            if history.window([(first["start"], read["end"])]) is not None:
                first = first_of[f"{read['key']}:{seen.name}", seen.version] = read
            if read["start"] - first["end"] > bound:
                for_s = read["start"] - first["end"]
                sentence = f"{read['key']}: {for_s:.1f} s after it was read, version {seen.version} is still there"
                yield Finding("I4", read["key"], sentence, (event, first, read), ((first["start"], read["end"]),))


def no_long_reads(history: History) -> Iterator[Finding]:
    """I5."""
    for read in history.by_kind["read"]:
        took = read["end"] - read["start"]
        if took > history.bounds.read:
            yield Finding("I5", read["key"], f"{read['key']}: the read took {took:.1f} s", (read,), ())


def nothing_is_left(history: History) -> Iterator[Finding]:
    """I6."""
    for quiet in history.by_kind["quiet"]:
        if left := quiet.get("left"):
            yield Finding("I6", str(left[0]), f"at rest there are still {left}", (quiet,), ())


def values_are_of_their_keys(history: History) -> Iterator[Finding]:
    """The rule of keys."""
    for read in history.reads:
        if read["versions"].keys() != set(history.bounds.names(read["key"])):
            yield Finding("key", read["key"], f"{read['key']} got the value of {set(read['versions'])}", (read,), ())


def one_load_at_a_time(history: History) -> Iterator[Finding]:
    """The rule of loads."""
    running: dict[str, Event] = {}
    for load in history.by_kind["load"]:
        before = running.get(load["key"])
        if before is not None and before["end"] > load["start"]:
            yield _pair("load", before, load, "it was loaded twice at once")
        if before is None or before["end"] < load["end"]:
            running[load["key"]] = load


def loads_at_once(events: Iterable[Event]) -> int:
    """Return how many loads of one key there were at once, at most."""
    turns = defaultdict(list)
    for event in events:
        if event["kind"] == "load":
            turns[event["key"]] += [(event["start"], 1), (event["end"], -1)]
    return max((max(accumulate(change for _, change in sorted(of_key))) for of_key in turns.values()), default=0)


def floors(history: History) -> dict[str, int]:
    """Return the version of each node that a value at rest has at least: of what no fault may have lost."""
    found: dict[str, int] = {}
    for event in (*history.by_kind["kept"], *(one for one in history.by_kind["invalidate"] if one["ok"])):
        if "tag" in event and history.window(history.may_be_lost(event)) is None:
            for node, version in event["versions"].items():
                found[node] = max(found.get(node, 0), version)
    return found


def seconds_until_fresh(history: History) -> list[float]:
    """Return for each heal after how long the last value was read that an invalidation before it should have replaced.

    0 where none was read. Reads after the next fault do not count.
    """
    done_by_name = invalidations(history)
    faults = [fault["start"] for fault in history.by_kind["fault"]]
    found = []
    for heal in history.by_kind["heal"]:
        place = bisect_left(faults, heal["end"])
        until = faults[place] if place < len(faults) else inf
        floors = {
            name: max((one.version for one in done if one.said.returned_at <= heal["end"]), default=0)
            for name, done in done_by_name.items()
        }
        late = [
            read["end"] - heal["end"]
            for read in history.reads
            if heal["end"] <= read["start"] < until
            and any(seen.version < floors.get(seen.name, 0) for seen in observations(read))
        ]
        found.append(max(late, default=0.0))
    return found


def _pair(rule: str, first: Event, last: Event, sentence: str) -> Finding:
    span = first["start"], max(first["end"], last["end"])
    return Finding(rule, last["key"], f"{last['key']}: {sentence}", (first, last), (span,))


RULES: Final[tuple[Callable[[History], Iterator[Finding]], ...]] = (
    one_winner, tokens_never_go_back, no_stale_reads, no_fresh_reads_past_the_ttl, stale_values_are_replaced,
    no_long_reads, nothing_is_left, values_are_of_their_keys, one_load_at_a_time,
)  # fmt: skip
