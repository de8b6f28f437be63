"""Readable tables of the events that lead to an error in Spin's output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.model.cases import BROKEN, INVARIANTS, ROWS, Case

HEAD: Final = "| # | process | step | reply |\n| --- | --- | --- | --- |\n"
PROBE: Final = 7
FIRST_FOLLOW_UP: Final = 10
ANY: Final = 255
# Steps whose violation is printed before their own line: the check fails in the middle of the step.
PRINTED_AFTER: Final = {"commit", "invalidate"}
COMMITS: Final = {1: "accepted", 2: "accepted as stale", 3: "superseded", 4: "invalidated", 5: "lost"}
RUNS_OUT: Final = {
    "queued": "the claim runs out",
    "running": "the lease runs out",
    "retrying": "the pause before the retry is over",
    "cooling": "the cooling is over",
}
LOSSES: Final = {
    "record": "loses the record",
    "entry": "loses the entry",
    "empty": "restarts without its data",
    "fence": "loses only the fence",
}

DONE: Final = {"1": "done", "0": "no"}
AFTER: Final = {"1": ", after the bookmark", "0": ""}
PROBES: Final = {
    "over": "all deadlines have passed",
    "behind": "the granted time has passed, but the deadline has not",
    "again": "the message is sent once more",
}

Row = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Story:
    """A counter-example for the page: its variant, the error, and the guard that prevents it."""

    name: str
    wrong: str
    guard: str

    @property
    def case(self) -> Case:
        """The broken variant."""
        return next(case for case in (*BROKEN, *ROWS) if case.name == self.name)


STORIES: Final = (
    Story("commit without nonce",
          "Two runs have the same token, since Redis' clock stepped back and the record was gone. The older one "
          "commits while the newer one holds the lease.",
          "`commit` also compares the nonce, which each run draws at random."),
    Story("commit if none is there",
          "A run whose record is gone commits, although another one has acquired since.",
          "`commit` rejects if there is no record. Work is lost, but no value."),
    Story("number below the entry's",
          "The record was lost and the clock stepped back, so a new token is not above the entry's.",
          "`draw` in the prelude draws a number above the entry's token, and `commit` compares the two."),
    Story("commit ignores an invalidation",
          "The value was read before the invalidation, and is stored as fresh after it.",
          "`commit` compares the record's generation with its token: the value is stored, but stale, and one "
          "more refresh follows."),
    Story("lease == tok | INCR | invalidate = DEL",
          "The counter starts again with the record, so a new run has the old run's token (ABA), and the old "
          "one commits what it read before the invalidation.",
          "Numbers come from Redis' clock, never below the entry's; and the nonce."),
    Story("tok >= fence, missing = 0 | hybrid | eviction",
          "The fence is evicted, a missing fence counts as 0, and any token is above 0.",
          "`commit` rejects if there is no record."),
    Story("next load without bookmark",
          "The load after the invalidation has its bookmark, and the commit removes it with the record. The "
          "next load reads from a follower that is still behind.",
          "The entry's header keeps the bookmarks of its load, and the next load reads after them too "
          "(`refresher.flow.run.bookmarks_of`). The model found this."),
    Story("lease == tok | hybrid | failover loses the invalidation",
          "The new master never received the invalidation. No script can know.",
          "Nothing: a limit. `invalidate(replicas=n)` reports whether replicas had it, and the hard expiry ends "
          "it."),
    Story("claim waits forever",
          "No worker took the message of the claim. No other process may claim, ever.",
          "`claim` succeeds once `until` has passed, in any state."),
    Story("deadline without since",
          "The clock was set back by an hour, so the deadline of the claim is an hour farther away. Its message "
          "is lost, and no process may claim until then.",
          "The record keeps the time at which its deadline was set (`since`). A clock that is more than a "
          "second before that was set back, and the deadline counts as passed."),
    Story("acquire sent again is unknown",
          "The reply was lost; the worker repeats the step, and is refused because of its own run. All "
          "processes block until the lease expires.",
          "`acquire` recognises its own nonce, and replies as before."),
    Story("reader waits for the refresh",
          "The reader has a value within its grace, and blocks all the same.",
          "A reader returns what it has read. Claim and publication happen off its path."),
    Story("record without TTL",
          "The record of an invalidation at rest stays forever if no process reads the key again.",
          "Every step that creates or keeps a record sets its expiry in the same script."),
    Story("claim ignores what was seen",
          "The reader has read the old entry, and claims after the new one has been committed: an unnecessary "
          "load.",
          "`claim` is refused if the entry is not the one that the caller has seen."),
    Story("follow-up for whatever is there",
          "A hard invalidation hit the first run. Another run has loaded since, and the first requests one "
          "more.",
          "It claims for \"no entry\" (`refresher.flow.follow_up.request_follow_up`), and is refused if there is "
          "one. The model found this."),
)  # fmt: skip


def story_text(story: Story, events: Sequence[str]) -> str:
    """Return a story's text on the page."""
    rows = timeline(events)
    lines = [f"| {number} | {who} | {does} | {answer} |\n" for number, (who, does, answer) in enumerate(rows, 1)]
    breaks = f"Breaks **{INVARIANTS[story.case.violated]}**."
    ends = f"What goes wrong: {story.wrong}\n\nWhat stops it: {story.guard}\n"
    return f"### {title_of(story)}\n\n{breaks}\n\n{HEAD}{''.join(lines)}\n{ends}"


def title_of(story: Story) -> str:
    """Return a story's title: of a rule that was studied, its name and what happens."""
    if " | " not in story.name:
        return f"{story.name[0].upper()}{story.name[1:]}"
    rule, token, fault = story.name.replace(">=", "≥").split(" | ")
    return f"The rule `{rule}`, {token} as token: {fault}"


def timeline(events: Sequence[str]) -> list[Row]:
    """Return the steps up to the one that breaks an invariant."""
    rows: list[Row] = []
    is_broken = is_probing = False
    probed = 0  # from here on the model tried a message sent once more, without an error
    for event in events:
        kind, *values = event.split("|")
        if kind == "violated":
            is_broken = True
            continue
        if is_broken and kind not in PRINTED_AFTER:
            break
        if event in {"probe|over", "probe|behind"}:
            del rows[probed:]
        elif kind != "probe" and not is_probing:
            probed = len(rows) + 1
        is_probing = is_probing or kind == "probe"
        rows.append(WORDS[kind](*values))
        if is_broken:
            break
    return rows


def _who(nonce: str) -> str:
    return "a new worker" if int(nonce) == PROBE else f"worker {chr(ord('A') + int(nonce) - 1)}"


def _claimer(claim_id: str) -> str:
    number = int(claim_id)
    if number == PROBE:
        return "a new reader"
    return _who(str(number - FIRST_FOLLOW_UP)) if number > FIRST_FOLLOW_UP else f"reader {number}"


def _claim(claim_id: str, seen: str, status: str, number: str, state: str) -> Row:
    answers = {"1": f"granted, number {number}", "2": "no: already refreshed", "3": f"no: {state}"}
    what = {0: "no entry", ANY: "whatever is there"}.get(int(seen), f"token {seen}")
    return _claimer(claim_id), f"claims, for {what}", answers[status]


def _acquire(nonce: str, _number: str, ticket: str, status: str, number: str, state: str) -> Row:
    answers = {"1": f"token {number}", "2": "no: already fresh", "3": f"no: {state}"}
    return _who(nonce), "acquires" + (", with its ticket" if ticket != "0" else ""), answers[status]


def _read(reader: str, seen: str, stale: str) -> Row:
    found = f"token {seen}, {'stale' if stale == '1' else 'fresh'}" if seen != "0" else "nothing"
    return f"reader {reader}", "reads the entry", found


def _lost(who: str) -> Row:
    whose = _who(str(int(who) - FIRST_FOLLOW_UP)) if int(who) > FIRST_FOLLOW_UP else f"reader {who}"
    return "network", f"loses the reply to {whose}", "it will repeat the step"


def _redis(what: str) -> Row:
    word, _, number = what.partition(" ")
    return "Redis", f"its clock steps back to {number}" if word == "clock" else LOSSES[word], ""


def _time(what: str) -> Row:
    word, _, state = what.partition(" ")
    words = {
        "until": RUNS_OUT.get(state, ""),
        "retention": "the record goes with its retention",
        "behind": "the deadline is farther than it was set for",
        "since": "the old time has come again",
    }
    return "time", words[word], ""


def _end_of(step: str) -> Callable[..., Row]:
    def words(nonce: str, _token: str, status: str, *_: str) -> Row:
        return _who(nonce), step, "done" if status == "1" else "no: not mine any more"

    return words


WORDS: Final[dict[str, Callable[..., Row]]] = {
    "entry": lambda stale: ("at first", "an entry is there", f"token 1, {'stale' if stale == '1' else 'fresh'}"),
    "read": _read,
    "claim": _claim,
    "publish": lambda number: ("broker", f"has the message of claim {number}", ""),
    "republish": lambda status, number: ("a reader", "publishes again", f"claim {number}" if status == "1" else "no"),
    "unclaim": lambda claim_id, status, _: (_claimer(claim_id), "takes its claim back", DONE[status]),
    "take": lambda run, number, _: (_who(run), f"takes the message of claim {number}", ""),
    "acquire": _acquire,
    "load": lambda run, informed: (_who(run), f"reads the graph{AFTER[informed]}", ""),
    "lag": lambda run: ("the graph's follower", f"is behind, and gives {_who(run)} the old value", ""),
    "commit": lambda nonce, token, status, _: (_who(nonce), f"commits, token {token}", COMMITS[int(status)]),
    "invalidate": lambda hard, number, _: (
        "writer", f"changes the graph and invalidates ({'hard' if hard == '1' else 'soft'})", f"generation {number}",
    ),
    "renew": _end_of("renews its lease"),
    "retry": _end_of("will retry"),
    "fail": _end_of("gives up"),
    "hand_back": _end_of("hands its run back"),
    "time": _time,
    "redis": _redis,
    "replica": lambda what: ("replica", "has all until here" if what == "copied" else "becomes the master", ""),
    "lost": _lost,
    "late": lambda _: ("network", "brings a request a second time", ""),
    "probe": lambda what: ("time", PROBES[what], ""),
    "quiet": lambda _: ("all", "have no step left", ""),
}  # fmt: skip
