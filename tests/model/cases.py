"""Cases for Spin: bounds within which every invariant must hold, and broken variants which it must refute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INVARIANTS: Final = {
    1: "I1 one winner",
    2: "I2 monotonic",
    3: "I3 no lost invalidation",
    4: "I4 liveness",
    5: "I5 no wait",
    6: "I6 one key at rest",
    7: "one refresh, not several",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One run of Spin.

    ``flags`` are the model's own (``READERS=2`` or ``FOLLOWER``). ``violated`` is the number of the invariant that a
    broken variant must break first, and 0 for what must hold. ``what`` says what is in it, or what is broken.
    ``model`` is the file: ``lease``, ``tags`` or ``feed``.
    """

    name: str
    what: str
    flags: tuple[str, ...]
    violated: int = 0
    is_long: bool = False
    model: str = "lease"


def bounded(readers: int, runs: int, invalidations: int, *more: str) -> tuple[str, ...]:
    """Return the flags for these numbers of readers, runs and invalidations."""
    return (f"READERS={readers}", f"RUNS={runs}", f"INVALIDATIONS={invalidations}", *more)


ALL_LOSSES: Final = ("LOSES_RECORD", "LOSES_ENTRY", "RESTARTS", "CLOCK_STEPS_BACK")
CALM: Final = ("CALM", "NO_LAPSE", "LOADS_COUNT=1")

UPHELD: Final = (
    Case("two invalidations", "two runs, soft and hard invalidations", bounded(1, 2, 2)),
    Case("three runs", "a message taken three times, also late", bounded(1, 3, 1)),
    Case("other ends", "runs also retry, fail, hand back and renew", bounded(1, 2, 1, "ENDS")),
    Case("lost replies", "claim, acquire and commit are sent again", bounded(1, 2, 1, "REPEATS")),
    Case("late requests", "a request arrives a second time, late", bounded(1, 2, 1, "FAULTS=1", "LATE_REQUESTS")),
    Case("data loss", "record, entry or all is lost, or the clock steps back",
         bounded(1, 2, 1, "FAULTS=1", *ALL_LOSSES)),
    Case("data loss, twice", "the same twice", bounded(1, 2, 1, "FAULTS=2", *ALL_LOSSES), is_long=True),
    Case("data loss, three times", "the same three times", bounded(1, 2, 1, "FAULTS=3", *ALL_LOSSES), is_long=True),
    Case("failover", "to a replica that is behind", bounded(1, 2, 1, "FAILOVER")),
    Case("failover, clock back", "the new master's clock is behind, too",
         bounded(1, 2, 1, "FAILOVER", "FAULTS=1", "CLOCK_STEPS_BACK", "NO_HARD"), is_long=True),
    Case("split", "the old master goes on while another one is made", bounded(1, 2, 1, "FAILOVER", "SPLIT"),
         is_long=True),
    Case("follower", "loads read from a follower of the graph that lags", bounded(1, 2, 1, "FOLLOWER", "NO_HARD")),
    Case("follower, two readers", "the same, both early", bounded(2, 2, 1, "FOLLOWER", "NO_HARD"), is_long=True),
    Case("two readers", "both early", bounded(2, 2, 1), is_long=True),
    Case("nobody answers", "all others may block: a reader continues", bounded(1, 2, 1, "PROPERTY=5", "ENDS")),
    Case("calm", "no crash, no loss, no deadline passes; replies are lost",
         bounded(2, 3, 1, *CALM, "CONSUMED", "REPEATS")),
    Case("calm, two invalidations", "the same without lost replies", bounded(2, 4, 2, *CALM, "CONSUMED")),
    Case("calm, redelivered", "every message may be taken by every run", bounded(2, 3, 1, *CALM, "PROPERTY=7")),
)  # fmt: skip


def broken(name: str, what: str, violated: int, *flags: str, by: tuple[str, ...] = ()) -> Case:
    """Return a broken variant: ``flags`` break it, ``by`` is the world in which that shows."""
    return Case(name, what, (*(by or bounded(1, 2, 1)), *flags), violated)


LOST_AND_BACK: Final = ("FAULTS=2", "RESTARTS", "LOSES_RECORD", "CLOCK_STEPS_BACK")
FOLLOWER: Final = bounded(2, 2, 1, "FOLLOWER", "NO_HARD")
CALM_WORLD: Final = bounded(2, 3, 1, *CALM, "CONSUMED")
REDELIVERED: Final = bounded(2, 3, 1, *CALM, "PROPERTY=7")

BROKEN: Final = (
    broken("commit without nonce", "commit compares only the token", 1, "COMMIT_WITHOUT_NONCE", *LOST_AND_BACK),
    broken("commit without nonce, two masters", "as above: in a split both have given the same token", 1,
           "COMMIT_WITHOUT_NONCE", "FAILOVER", "SPLIT"),
    broken("commit if a record is there", "commit accepts a record of any run", 1, "COMMIT_IF_RECORD"),
    broken("commit if none is there", "commit also writes if the record is gone", 1, "COMMIT_IF_MISSING"),
    broken("late commit keeps its token", "a late commit leaves token and nonce in the record of the next claim", 1,
           "LATE_COMMIT_KEEPS_TOKEN", "REPEATS", "FAULTS=1", "LOSES_ENTRY", by=bounded(2, 1, 0)),
    broken("number below the entry's", "a number depends only on record and clock, and commit ignores the entry",
           2, "DRAW_IGNORES_ENTRY", "COMMIT_IGNORES_ENTRY", "PROPERTY=2", *LOST_AND_BACK),
    broken("commit ignores an invalidation", "commit stores as fresh in spite of an invalidation", 3,
           "COMMIT_IGNORES_INVALIDATION"),
    broken("commit ignores a hard one", "commit stores, as stale, in spite of a hard invalidation", 3,
           "COMMIT_IGNORES_HARD"),
    broken("claim forgets an invalidation", "a claim clears the generation, as if its load were the only one", 3,
           "CLAIM_FORGETS_INVALIDATION", "NO_HARD", by=bounded(2, 2, 1)),
    broken("load without bookmark", "an invalidation gives no bookmark, and a follower lags", 3, "NO_BOOKMARK",
           by=FOLLOWER),
    broken("next load without bookmark", "the load after the next one has no bookmark any more", 3,
           "LOAD_FORGETS_ENTRYS_MARKS", by=FOLLOWER),
    broken("record lost, and its bookmark", "no bug but a limit: the record is lost, and a follower lags", 3,
           "FOLLOWER", "NO_HARD", "FAULTS=1", "LOSES_RECORD"),
    broken("claim waits forever", "a claim does not check whether `until` has passed", 4, "CLAIM_WAITS_FOR_EVER"),
    broken("deadline without since", "only `until` counts, and the clock is set back", 4,
           "NO_SINCE", "PROPERTY=4", "FAULTS=1", "CLOCK_STEPS_BACK"),
    broken("an INCR as number", "numbers start again when the record is lost", 4, "INCR", "PROPERTY=4",
           "FAULTS=1", "LOSES_RECORD"),
    broken("number below the entry's, stuck", "as above, but commit checks the entry", 4, "DRAW_IGNORES_ENTRY",
           "PROPERTY=4", *LOST_AND_BACK),
    broken("acquire sent again is unknown", "a worker whose reply was lost is refused because of its own run", 4,
           "ACQUIRE_REPEAT_UNKNOWN", "REPEATS", by=CALM_WORLD),
    broken("claim sent again is unknown", "a reader whose reply was lost is refused by its own claim", 4,
           "CLAIM_REPEAT_UNKNOWN", "REPEATS", by=CALM_WORLD),
    broken("reader waits for the refresh", "a reader with a stale value waits for the new one", 5, "READER_WAITS",
           "PROPERTY=5"),
    broken("failure drops the value", "a refresh that is abandoned deletes the entry", 5, "FAIL_DROPS_ENTRY", "ENDS",
           by=bounded(2, 2, 0)),
    broken("soft drops the value", "a soft invalidation deletes the entry", 5, "SOFT_DROPS_ENTRY"),
    broken("commit keeps the record", "commit leaves the record behind", 6, "COMMIT_KEEPS_RECORD"),
    broken("record without TTL", "an invalidation at rest creates a record that never expires", 6, "REST_WITHOUT_TTL"),
    broken("claim ignores what was seen", "a claim does not check whether the entry has been replaced", 7,
           "CLAIM_IGNORES_SEEN", by=CALM_WORLD),
    broken("acquire ignores a run", "acquire takes the lease from a live run", 7, "ACQUIRE_IGNORES_RUNNING",
           by=REDELIVERED),
    broken("acquire ignores a fresh entry", "an old message is processed again after its refresh", 7,
           "ACQUIRE_IGNORES_FRESH", by=REDELIVERED),
    broken("follow-up for whatever is there", "a run that a hard invalidation hit requests one more, though "
           "another has loaded since", 7, "FOLLOW_UP_FOR_ANY", by=CALM_WORLD),
)  # fmt: skip

# The table of an earlier, smaller study, whose rows the design rests on. Its property was: no commit stores, as fresh,
# what was read before the newest invalidation.
STUDY: Final = bounded(1, 2, 2, "PROPERTY=3", "NO_RETENTION", "RECORD_STAYS")
EVICTED: Final = ("FAULTS=2", "LOSES_RECORD")
RULES: Final = {"tok >= fence, missing = 0": "FENCE", "lease == tok": "", "exists and tok >= fence": "FENCE_IF_RECORD"}
TOKENS: Final = {"INCR": ("INCR",), "hybrid": (), "hybrid, no nonce": ("COMMIT_WITHOUT_NONCE",)}


def row(rule: str, token: str, fault: str, violated: int, *flags: str) -> Case:
    """Return a row: the rule of the commit, what its token is, what happens, and 3 where that breaks the property."""
    chosen = (RULES[rule],) if RULES[rule] else ()
    return Case(f"{rule} | {token} | {fault}", "", (*STUDY, *chosen, *TOKENS[token], *flags), violated)


def rows(fault: str, violated: int, *flags: str, tokens: tuple[str, ...] = ("INCR", "hybrid")) -> tuple[Case, ...]:
    """Return a row of "any" rule: one for each, and each of ``tokens``."""
    return tuple(row(rule, token, fault, violated, *flags) for rule in RULES for token in tokens)


ROWS: Final = (
    *(row("tok >= fence, missing = 0", token, "none", 0) for token in ("INCR", "hybrid")),
    *(row("tok >= fence, missing = 0", token, "eviction", 3, *EVICTED) for token in ("INCR", "hybrid")),
    row("lease == tok", "INCR", "eviction", 3, *EVICTED),
    row("lease == tok", "hybrid", "eviction", 0, *EVICTED),
    row("exists and tok >= fence", "hybrid", "eviction of the whole record", 0, *EVICTED),
    row("exists and tok >= fence", "hybrid", "only the fence is lost", 3, "FAULTS=2", "LOSES_FENCE"),
    row("lease == tok", "hybrid", "invalidate = DEL, eviction", 0, *EVICTED, "INVALIDATE_DROPS_RECORD"),
    row("lease == tok", "INCR", "invalidate = DEL", 3, "INVALIDATE_DROPS_RECORD"),
    *rows("failover loses the invalidation", 3, "FAILOVER", "FAILOVER_LOSES_INVALIDATION"),
    *rows("the follower lags", 3, "FOLLOWER", "NO_BOOKMARK", tokens=("hybrid",)),
    *rows("invalidate deletes the value alone", 3, "INVALIDATE_VALUE_ONLY"),
    row("lease == tok", "hybrid, no nonce", "data loss, clock back", 3, "FAULTS=2", "RESTARTS", "CLOCK_STEPS_BACK"),
)  # fmt: skip


def tagged(
    name: str, what: str, runs: int, invalidations: int, *flags: str, violated: int = 0, is_long: bool = False
) -> Case:
    """Return a case of the tags' model."""
    bounds = (f"RUNS={runs}", f"INVALIDATIONS={invalidations}")
    return Case(name, what, (*bounds, *flags), violated, is_long, "tags")


TAGS_UPHELD: Final = (
    tagged("two invalidations of a tag", "two runs of one key, soft invalidations", 2, 2, "NO_HARD"),
    tagged("soft and hard", "the same, each soft or hard", 2, 2, is_long=True),
    tagged("two keys of a tag", "a run moves a key behind the walk", 2, 1, "KEYS=2"),
    tagged("taken over", "an invalidator stops between any two steps, and a worker finishes", 1, 2, "FINISHER"),
    tagged("taken over, two keys", "the same with two keys", 1, 1, "KEYS=2", "FINISHER"),
    tagged("tag clock lost", "the clock's number is evicted, or lost in a failover", 1, 2, "NO_HARD", "FAULT",
           "LOSES_CLOCK"),
    tagged("tagged key lost", "its entry or its record is lost", 2, 1, "FAULT", "LOSES_KEY"),
    tagged("tag and follower", "loads read from a follower of the graph that lags", 2, 1, "NO_HARD", "FOLLOWER"),
)  # fmt: skip


def broken_tags(name: str, what: str, runs: int, invalidations: int, *flags: str) -> Case:
    """Return a broken variant of the tags' model: each loses an invalidation."""
    return tagged(name, what, runs, invalidations, *flags, violated=3)


TAGS_BROKEN: Final = (
    broken_tags("clock read after the load", "what was invalidated during the load counts as before it", 1, 1,
                "CLOCK_AFTER_LOAD"),
    broken_tags("last not compared", "a run ignores that its tag was invalidated since", 1, 1, "LAST_IGNORED"),
    broken_tags("registered after the commit", "until then no invalidation finds the entry", 1, 1,
                "REGISTER_AFTER_COMMIT"),
    broken_tags("walked before marked", "a run registers between the two", 1, 1, "WALK_BEFORE_MARK"),
    broken_tags("marked before ticked", "the mark has a number that loads have read already", 1, 1,
                "MARK_BEFORE_TICK"),
    broken_tags("last is the later mark's", "two marks arrive in the other order, and the smaller number stays", 1, 2,
                "LAST_IS_N"),
    broken_tags("walk ends where the mark saw the end", "a run moves the key behind it, and never commits", 1, 1,
                "WALK_ENDS_AT_MARK"),
    broken_tags("pending by tag", "the first to finish removes what another has yet to finish", 1, 2, "FINISHER",
                "PENDING_BY_TAG"),
    broken_tags("kept after marked", "the invalidator stops between the two, and no worker knows", 1, 1,
                "KEEP_AFTER_MARK"),
    broken_tags("finished before walked", "as above, later", 1, 1, "FINISH_BEFORE_WALK"),
    broken_tags("cursor before its page", "who takes over goes on behind a page that was not invalidated", 1, 1,
                "FINISHER", "CURSOR_BEFORE_ITS_PAGE"),
    broken_tags("bookmarks of the tag ignored", "a load that began after it reads from a follower that lags", 2, 1,
                "NO_HARD", "FOLLOWER", "MARKS_IGNORED"),
    broken_tags("tag clock only counts", "its number is lost, and numbers come again", 1, 2, "NO_HARD", "FAULT",
                "LOSES_CLOCK", "CLOCK_COUNTS_ONLY"),
    broken_tags("index lost", "no bug but a limit: a registration is evicted, or lost in a failover", 2, 1, "FAULT",
                "LOSES_INDEX"),
    broken_tags("state lost", "no bug but a limit: an acknowledged mark is evicted, or lost in a failover", 2, 1,
                "FAULT", "LOSES_STATE"),
)  # fmt: skip


def fed(name: str, what: str, writes: int, runs: int, *flags: str, violated: int = 0) -> Case:
    """Return a case of the change feed's model."""
    return Case(name, what, (f"WRITES={writes}", f"RUNS={runs}", *flags), violated, model="feed")


FEED_UPHELD: Final = (
    fed("three changes", "commit in any order, or not at all; the consumer dies between any two steps", 3, 1),
    fed("two loads", "while the changes are invalidated", 2, 2),
    fed("two consumers", "the lease ran out: both are at work, and one may be paused for any time", 2, 1,
        "CONSUMERS=2"),
    fed("feed and follower", "loads read from a follower of the graph that lags", 2, 2, "FOLLOWER"),
    fed("removed by hand", "somebody deletes a note whose change is invalidated, before it is acknowledged", 2, 2,
        "BY_HAND"),
)  # fmt: skip


def broken_feed(name: str, what: str, writes: int, runs: int, *flags: str) -> Case:
    """Return a broken variant of the change feed's model: each loses an invalidation."""
    return fed(name, what, writes, runs, *flags, violated=3)


FEED_BROKEN: Final = (
    broken_feed("noted afterwards", "the note has a transaction of its own, before which the writer dies", 1, 1,
                "NOTED_AFTERWARDS"),
    broken_feed("noted before", "the note is taken before the change is committed", 1, 1, "NOTED_BEFORE"),
    broken_feed("acknowledged first", "the consumer dies between that and the invalidation", 1, 1,
                "ACKNOWLEDGED_FIRST"),
    broken_feed("a cursor of positions", "a transaction that began earlier commits later, and is passed over", 2, 1,
                "POSITION_CURSOR"),
    broken_feed("acknowledged by label", "all notes go, also those that came after the read", 2, 1, "BY_LABEL"),
    broken_feed("acknowledged by the graph's id", "a paused consumer removes a later note, which has the same id", 2,
                1, "BY_ID_ALONE", "CONSUMERS=2"),
    broken_feed("bookmark before the read", "a load that was given it need not see what was taken", 1, 1, "FOLLOWER",
                "BOOKMARK_BEFORE_READ"),
    broken_feed("removed unread", "no bug but a limit: somebody deletes a note that nobody has taken", 1, 1, "BY_HAND",
                "UNREAD"),
)  # fmt: skip

PARTS: Final = {
    "upheld": UPHELD,
    "broken": BROKEN,
    "tags": TAGS_UPHELD,
    "tags-broken": TAGS_BROKEN,
    "feed": FEED_UPHELD,
    "feed-broken": FEED_BROKEN,
    "rows": ROWS,
}
"""The tables of the README, by the names that its marks have."""
