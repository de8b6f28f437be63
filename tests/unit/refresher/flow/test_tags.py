"""Tags in the refresh flow: the clock, registrations, and invalidations that the load may have missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api_client.errors import CacheUnavailable
from api_client.protocol.keys import tag_member
from api_client.protocol.lease import MAX_BOOKMARKS_BYTES, Call, CommitStatus
from api_client.protocol.tags import MAX_RUN_SECONDS, TagReply
from api_client.transport.scripts import Until
from refresher.flow.outcome import OutcomeKind
from refresher.queries import Registry, query
from tests.support.fake_refresher import ACQUIRED, ITEM, KEY, NOW_US, Worker
from tests.unit.refresher.flow.test_batched_refreshes import BatchWorker, item, kinds

CLOCK = 500
MANY = tuple(f"{n:05}".ljust(60, "m") for n in range(2_000))


def tag_query(registry: Registry, name: str, **options: Any) -> None:
    """Register an existing query again, with tags."""
    other, there = Registry(), registry.find(name, 1)
    query(name, into=other, **options)(there.loader)
    registry.add(next(iter(other)))


class TaggedWorker(Worker):
    """A refresher of a query with tags; records its steps, round trip by round trip."""

    def __init__(self, tags: Any = lambda value, n: [f"n:{n}", f"value:{value}"], **options: Any) -> None:
        super().__init__()
        options = {"ttl": 300, "grace": 60} | options
        tag_query(self.registry, "q", tags=tags, **options)
        self.replies |= {"tag_clock": CLOCK, "tag_tick": CLOCK + 1, "invalidate": 1_001}
        self.states: dict[str, TagReply | CacheUnavailable] = {}
        self.registered: list[Call[Any]] = []
        self.rounds: list[list[str]] = []
        self.until: Until = all

    def run_each(self, calls: Any, *, until: Until = all) -> list[Any]:
        self.rounds.append([call.script for call in calls])
        self.until = until
        return super().run_each(calls, until=until)

    def run(self, call: Call[Any]) -> Any:
        if call.script == "tag_register":
            self.registered.append(call)
            self.replies[call.script] = self.states.get(str(len(self.registered)), reply())
        return super().run(call)


def reply(last: int = 0, hard: int = 0, bookmarks: tuple[str, ...] = (), later_seconds: float = 1) -> TagReply:
    return TagReply(NOW_US + int(later_seconds * 1e6), last, hard, bookmarks)


def test_a_tagged_refresh_takes_two_round_trips_more() -> None:
    worker = TaggedWorker()
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert worker.rounds == [["acquire"], ["tag_clock"], ["tag_register"] * 2, ["commit"]]
    assert worker.diary.index(("hold",)) < worker.diary.index(("tag_clock",)), "its lease is renewed meanwhile"
    lives_ms = {call.args[1] for call in worker.registered}
    settings = worker.settings
    late_seconds = settings.lease_limit_seconds + settings.record_retention_seconds + 60
    assert ({call.args[0] for call in worker.registered}, lives_ms) == (
        {tag_member(KEY)}, {round((360 + late_seconds) * 1_000)},
    )  # fmt: skip
    assert worker.header().tags == ("n:1", "value:value")


@pytest.mark.parametrize(
    ("tags", "options"),
    [
        ([], {}),
        (lambda value, n: [], {}),
        (["x"], {"ttl": 0, "grace": 0}),
        (lambda value, n: ["x"], {"ttl": 0, "grace": 0}),
    ],
    ids=["no tags", "none of this value", "never cached", "never cached, a function"],
)
def test_a_value_without_tags_is_not_registered(tags: Any, options: dict[str, Any]) -> None:
    worker = TaggedWorker(tags, **options)
    worker.refresher.refresh(ITEM)
    assert worker.rounds == [["acquire"], ["tag_clock"], ["commit"]]


@pytest.mark.parametrize(
    ("second", "hard"),
    [
        (reply(last=CLOCK + 1), 0),
        (reply(last=CLOCK + 9, hard=CLOCK), 0),
        (reply(last=CLOCK + 1, hard=CLOCK + 1), 1),
        (reply(later_seconds=MAX_RUN_SECONDS + 1), 0),
    ],
    ids=["soft", "hard before", "hard", "a run of hours"],
)
def test_a_run_whose_load_may_have_missed_an_invalidation_invalidates_its_key(second: TagReply, hard: int) -> None:
    worker = TaggedWorker()
    worker.states["2"] = second
    worker.replies["commit"] = CommitStatus.INVALIDATED if hard else CommitStatus.ACCEPTED_AS_STALE
    worker.refresher.refresh(ITEM)
    assert worker.rounds[2:] == [["tag_register"] * 2, ["invalidate", "tag_tick"], ["commit"]]
    call = worker.calls["invalidate"]
    assert (call.keys, call.args[0]) == ((KEY.entry, KEY.record), hard)
    assert worker.calls["tag_tick"].args == (second.last,), "a clock that was lost is raised"
    assert {"claim", "publish"} <= set(worker.steps()), "one more refresh follows"


@pytest.mark.parametrize("last", [0, 1, CLOCK])
def test_a_tag_invalidation_before_the_load_does_not_invalidate_the_key(last: int) -> None:
    worker = TaggedWorker()
    worker.states["1"] = reply(last=last, hard=last)
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert "invalidate" not in worker.steps()


def test_without_the_tag_clock_a_run_is_committed_only_if_its_tags_remember_no_invalidation() -> None:
    worker = TaggedWorker()
    worker.replies["tag_clock"] = CacheUnavailable("its node is unreachable")
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    worker.states["3"] = reply(last=1, hard=1)
    with pytest.raises(CacheUnavailable, match="its node"):
        worker.refresher.refresh(ITEM)
    assert worker.rounds[-1] == ["hand_back"]
    assert "invalidate" not in worker.steps(), "the entry may be of a load after it"


def test_a_bookmark_that_the_load_was_not_given_counts_as_an_invalidation() -> None:
    worker = TaggedWorker()
    worker.states["1"] = reply(last=1, bookmarks=("b1",))
    worker.refresher.refresh(ITEM)
    assert "invalidate" not in worker.steps(), "its record had it"
    worker.states |= {"3": reply(last=1, bookmarks=("b1", "b2")), "4": reply(bookmarks=("b3",))}
    worker.refresher.refresh(ITEM)
    assert worker.calls["invalidate"].args[:2] == (0, "b1\nb2\nb3")


def test_more_tag_bookmarks_than_a_record_keeps_do_not_invalidate_the_key_again() -> None:
    worker = TaggedWorker()
    worker.states |= {str(n): reply(last=1, bookmarks=MANY) for n in range(1, 5)}
    worker.refresher.refresh(ITEM)
    given = str(worker.calls["invalidate"].args[1])
    assert len(given) <= MAX_BOOKMARKS_BYTES
    assert given.endswith(MANY[-1])
    worker.diary.clear()
    worker.replies["acquire"] = replace(ACQUIRED, bookmarks=tuple(given.split("\n")))
    worker.refresher.refresh(ITEM)
    assert "invalidate" not in worker.steps()


@pytest.mark.parametrize("script", ["tag_register", "invalidate"])
def test_a_run_with_an_unanswered_tag_step_is_not_committed(script: str) -> None:
    worker = TaggedWorker()
    worker.states["1"] = reply(last=CLOCK + 1)
    if script == "tag_register":
        worker.states["2"] = CacheUnavailable("away")
    worker.replies["invalidate"] = CacheUnavailable("away")
    with pytest.raises(CacheUnavailable):
        worker.refresher.refresh(ITEM)
    assert "commit" not in worker.steps()
    assert worker.rounds[-1] == ["hand_back"], "its lease does not run out as that of a lost process"
    assert worker.until([False]), "Redis has been waited for"


def test_a_commit_waits_for_redis_and_what_was_handed_back_beside_it_does_not() -> None:
    worker = TaggedBatchWorker({tag_member(item(2).key("cache"))})
    worker.refresh(1, 2)
    assert worker.rounds[-1] == ["commit", "hand_back"]
    assert [worker.until(answered) for answered in ([True, False], [False, True])] == [True, False]


def test_a_run_is_committed_even_if_the_tag_clock_can_t_be_raised() -> None:
    worker = TaggedWorker()
    worker.states["1"] = reply(last=CLOCK + 1)
    worker.replies |= {"tag_tick": CacheUnavailable("away"), "commit": CommitStatus.ACCEPTED_AS_STALE}
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED_AS_STALE


def _fails(value: object, n: int) -> list[str]:
    raise KeyError(n)


def _fails_late(value: object, n: int) -> Any:
    yield "x"
    raise RuntimeError("late")


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        (lambda value, n: "n:1", "tags of type str"),
        (lambda value, n: [n], "a tag of type int"),
        (lambda value, n: ["x" * 201], "a tag of 201 bytes"),
        (lambda value, n: [str(one) for one in range(65)], "more than 64 tags"),
        (lambda value, n, more: ["x"], "TypeError"),
        (_fails, "KeyError: 1"),
        (_fails_late, "RuntimeError: late"),
    ],
    ids=["text", "number", "long", "many", "signature", "throws", "throws late"],
)
def test_bad_tags_are_one_permanent_error_and_the_stale_value_stays(tags: Any, says: str) -> None:
    worker = TaggedWorker(tags)
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why, outcome.attempts) == (OutcomeKind.FAILED, "tags", 1)
    assert {"commit", "tag_register"}.isdisjoint(worker.steps())
    (letter,) = worker.letters
    assert letter.message.startswith("tags of 'q': ")
    assert says in letter.message


class TaggedBatchWorker(BatchWorker):
    """The same of a query that loads batches; Redis does not answer a registration of the keys in ``unanswered``."""

    def __init__(self, unanswered: set[bytes]) -> None:
        super().__init__()
        self.unanswered = unanswered
        self.until: Until = all
        self.replies |= {"tag_clock": CLOCK}
        tag_query(self.registry, "many", ttl=300, grace=60, batch=8, tags=_of_batch)

    def run_each(self, calls: Any, *, until: Until = all) -> list[Any]:
        self.until = until
        return super().run_each(calls, until=until)

    def run(self, call: Call[Any]) -> Any:
        if call.script == "tag_register":
            self.replies[call.script] = CacheUnavailable("away") if call.args[0] in self.unanswered else reply()
        return super().run(call)


def _of_batch(value: str, n: int) -> list[str]:
    if n == 4:
        raise ValueError("no")
    return [f"n:{n}"]


def test_in_a_batch_each_key_has_its_tags_and_its_own_failure() -> None:
    worker = TaggedBatchWorker({tag_member(item(2).key("cache"))})
    assert kinds(worker.refresh(1, 2, 3, 4)) == {
        1: OutcomeKind.COMMITTED, 2: CacheUnavailable, 3: OutcomeKind.COMMITTED, 4: OutcomeKind.FAILED,
    }  # fmt: skip
    assert worker.rounds[:4] == [
        ["acquire"] * 4, ["tag_clock"], ["tag_register"] * 3, ["commit"] * 2 + ["hand_back"],
    ]  # fmt: skip
