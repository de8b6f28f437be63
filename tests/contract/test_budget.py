"""The budgets' three scripts: what is granted when, who goes first, and what a lost reply or a dead worker leaves."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import redis

from api_client.protocol.budget import LONGEST_PAUSE_SECONDS, SHARE_SECONDS, Budget, Share, Urgency
from api_client.protocol.keys import budget_keys
from api_client.transport.scripts import LeaseStore
from tests.support.lease_world import ClockedWorld, World

SPACING, LATE = 0.002, 0.02
MISS, STALE, EARLY = Urgency.MISS, Urgency.STALE, Urgency.EARLY
HELD = round(SHARE_SECONDS * 1_000)
EPSILON = 1e-6
UNBOUNDED = Budget()

_numbers = itertools.count(1)


@dataclass
class Fleet:
    """The workers of a namespace of its own; each load has a name."""

    world: World
    all: Budget = UNBOUNDED
    of_query: Budget = UNBOUNDED
    namespace: str = field(default_factory=lambda: f"fleet_{next(_numbers)}")

    def share(self, name: str, query: str = "q") -> Share:
        return Share(self.namespace, query, name, self.all, self.of_query)

    def take(self, name: str, urgency: Urgency = STALE, query: str = "q") -> float:
        """Return 0 when it was granted, else the seconds to wait."""
        return self.world.store.run(self.share(name, query).take(urgency))

    def renew(self, name: str) -> float:
        return self.world.store.run(self.share(name).renew())

    def release(self, name: str, query: str = "q", *, refund: bool = False) -> bool:
        return self.world.store.run(self.share(name, query).release(refund=refund))

    def released(self, name: str) -> int:
        """What the script itself replies."""
        return self.world.store.run(replace(self.share(name).release(refund=False), parse=int))

    def lives_ms(self, query: str | None = None) -> tuple[int, int]:
        shares, pace = (self.world.client.pttl(key) for key in budget_keys(self.namespace, query))
        return shares, pace

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.world, ClockedWorld)
        self.world.pass_time(seconds)

    def taken(self, names: str, urgency: Urgency = STALE) -> str:
        """The names of those that were granted, of several tried in turn."""
        return "".join(name for name in names if self.take(name, urgency) == 0)


WHOSE = pytest.mark.parametrize("whose", ["all", "of_query"])


def test_what_the_scripts_count_on() -> None:
    assert (HELD, LONGEST_PAUSE_SECONDS) == (5_000, 0.25)
    assert Budget(rate=100).arguments == (0, 10_000, 90_000)
    assert Budget(rate=3).arguments == (0, 333_334, 0)
    assert Budget(concurrency=7).arguments == (7, 0, 0)


# How many at once.


@WHOSE
def test_no_more_loads_at_once_than_the_budget_has(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=2)})
    assert fleet.taken("abcd") == "ab"
    assert fleet.release("a")
    fleet.pass_time(1)
    assert fleet.taken("cd") == "c"


def test_without_a_bound_every_load_is_granted(clocked_world: ClockedWorld) -> None:
    assert Fleet(clocked_world).taken("abcdefgh") == "abcdefgh"


def test_both_budgets_have_room_or_neither_is_charged(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(concurrency=2), of_query=Budget(concurrency=1))
    assert fleet.take("a") == 0
    assert fleet.take("b") > 0
    assert fleet.take("c", query="other") == 0, "b has charged nothing"
    fleet.release("a")
    fleet.pass_time(1)
    assert fleet.take("d", query="third") == 0
    assert fleet.take("e") > 0, "its query has room, the namespace none"
    fleet.release("c", query="other")
    fleet.pass_time(1)
    assert fleet.take("e") == 0


def test_a_share_taken_again_is_the_same_share_and_holds_from_then_on(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(rate=1, concurrency=1))
    assert fleet.take("a") == 0
    fleet.pass_time(SHARE_SECONDS - EPSILON)
    assert fleet.take("a") == 0, "the reply was lost"
    fleet.pass_time(SHARE_SECONDS - EPSILON)
    assert fleet.take("b") > 0
    assert fleet.renew("a") == SHARE_SECONDS


@WHOSE
def test_the_share_of_a_worker_that_died_ends_by_itself(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    fleet.pass_time(SHARE_SECONDS - EPSILON)
    assert fleet.take("b") > 0
    fleet.pass_time(EPSILON)
    assert fleet.take("b") == 0
    assert not fleet.release("a"), "it had ended"
    fleet.pass_time(1)
    assert fleet.take("c") > 0, "which gives b's to nobody"


@WHOSE
def test_a_renewed_share_goes_on(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    for _ in range(4):
        fleet.pass_time(SHARE_SECONDS - 1)
        assert fleet.renew("a") == SHARE_SECONDS
        assert fleet.take("b") > 0
    assert fleet.release("a")


def test_a_share_that_was_given_back_or_has_ended_is_not_brought_back(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(concurrency=1))
    assert fleet.taken("a") == "a"
    assert fleet.released("a") == 1
    assert fleet.renew("a") == 0
    assert fleet.released("a") == 0
    assert fleet.taken("b") == "b"
    fleet.pass_time(SHARE_SECONDS)
    assert fleet.taken("c") == "c"
    assert fleet.renew("b") == 0


@WHOSE
def test_a_clock_set_back_keeps_no_share_longer(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    fleet.pass_time(-1)
    assert fleet.take("b") > 0, "clocks are corrected by fractions of a second"
    fleet.pass_time(-EPSILON)
    assert fleet.take("b") == 0


def test_shares_are_granted_once_however_many_workers_ask_at_a_time(client: redis.Redis) -> None:
    fleet = Fleet(World(client, LeaseStore(client)), all=Budget(concurrency=7), of_query=Budget(concurrency=5))
    names = [str(number) for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        granted = [name for name, wait in zip(names, pool.map(fleet.take, names), strict=True) if wait == 0]
        assert len(granted) == 5
        assert all(pool.map(fleet.release, granted))
    assert client.zcard(budget_keys(fleet.namespace)[0]) == client.zcard(budget_keys(fleet.namespace, "q")[0]) == 0


# How many a second.


@WHOSE
def test_loads_begin_at_the_rate_and_a_refusal_says_when_the_next_is_due(
    clocked_world: ClockedWorld, whose: str
) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=4)})
    assert fleet.take("a") == 0
    assert fleet.take("b") == 0.25
    fleet.pass_time(0.25 - EPSILON)
    assert fleet.take("b") > 0
    fleet.pass_time(EPSILON)
    assert fleet.take("b") == 0
    assert fleet.take("c") == 0.25


@WHOSE
def test_a_tenth_of_a_second_s_loads_may_begin_at_once(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=50)})
    assert fleet.taken("abcdefg") == "abcde"
    fleet.pass_time(0.02)
    assert fleet.taken("hi") == "h"
    fleet.pass_time(1_000)
    assert fleet.taken("ABCDEFG") == "ABCDE", "what was not used is not saved"


def test_the_slower_rate_says_how_long_to_wait(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(rate=2), of_query=Budget(rate=1))
    assert fleet.take("a") == 0
    assert fleet.take("b") == 1.0
    fleet.pass_time(0.5)
    assert fleet.take("c", query="other") == 0
    assert fleet.take("b") == 0.5
    fleet.all, fleet.of_query = Budget(rate=1), Budget(rate=2)
    fleet.pass_time(5)
    assert fleet.take("d") == 0
    assert fleet.take("e") == 1.0


def test_a_rate_is_held_over_many_loads(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(rate=40))
    granted = 0
    for number in range(1_000):
        granted += fleet.take(str(number)) == 0
        fleet.pass_time(0.005)
    assert granted == 4 + 5 * 40 - 1


@WHOSE
def test_a_load_that_was_none_is_not_charged(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=1)})
    assert fleet.take("a") == 0
    assert fleet.release("a", refund=True)
    assert fleet.taken("bc") == "b"
    assert not fleet.release("a", refund=True), "once"
    assert fleet.taken("c") == ""
    assert fleet.release("b")
    fleet.pass_time(1 - EPSILON)
    assert fleet.taken("c") == "", "a load that was one is"


def test_a_refund_after_the_pace_is_forgotten_changes_nothing(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(rate=1_000))
    assert fleet.take("a") == 0
    fleet.pass_time(4)
    assert clocked_world.client.exists(*(budget_keys(fleet.namespace)[1], budget_keys(fleet.namespace, "q")[1])) == 0
    assert fleet.release("a", refund=True)
    assert clocked_world.client.exists(*(budget_keys(fleet.namespace)[1], budget_keys(fleet.namespace, "q")[1])) == 0


@WHOSE
def test_a_clock_set_back_or_a_faster_rate_delays_no_load(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=50)})
    assert fleet.taken("abcdef") == "abcde"
    fleet.pass_time(-EPSILON)
    assert fleet.taken("f") == "f", "due later than loads can have moved it"
    fleet.pass_time(-1_000)
    assert fleet.taken("ghijklm") == "ghijk"
    slow = Fleet(clocked_world, **{whose: Budget(rate=0.01)}, namespace=fleet.namespace)
    fleet.pass_time(1)
    assert slow.take("n") == 0
    assert fleet.taken("opqrstu") == "opqrs"


@WHOSE
def test_workers_of_a_release_without_a_rate_leave_that_of_the_next_one_alone(
    clocked_world: ClockedWorld, whose: str
) -> None:
    before = Fleet(clocked_world, **{whose: Budget(concurrency=100)})
    after = Fleet(clocked_world, **{whose: Budget(concurrency=100, rate=1)}, namespace=before.namespace)
    assert after.taken("ab") == "a"
    assert before.taken("cdef") == "cdef", "the rate is not theirs"
    assert after.taken("b") == ""
    after.pass_time(0.5)
    assert before.taken("ghij") == "ghij"
    assert after.taken("b") == "", "nor is its pace forgotten"
    after.pass_time(0.75)
    assert after.taken("b") == "b"


# Who waits.


@WHOSE
def test_those_who_wait_ask_again_one_after_the_other(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    assert [fleet.take(name) for name in "bcd"] == [SPACING, 2 * SPACING, 3 * SPACING]
    paced = Fleet(clocked_world, **{whose: Budget(rate=50, concurrency=1)})
    assert paced.take("a") == 0
    assert paced.take("b") == SPACING, "the rate has room"
    assert fleet.take("e", MISS) == SPACING, "misses by themselves"
    assert fleet.take("f", EARLY) == SPACING
    fleet.pass_time(0.1)
    assert fleet.take("b") == SPACING
    for number in range(200):
        longest = fleet.take(str(number))
    assert longest == LONGEST_PAUSE_SECONDS
    fleet.pass_time(-0.5)
    assert fleet.take("g") == LONGEST_PAUSE_SECONDS, "after a clock set back, too"


@WHOSE
def test_those_who_wait_for_the_rate_ask_again_from_when_the_next_is_due(
    clocked_world: ClockedWorld, whose: str
) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=5)})
    assert fleet.take("a") == 0
    assert [fleet.take(name) for name in "bc"] == pytest.approx([0.2 + SPACING, 0.2 + 2 * SPACING])
    fleet.pass_time(0.1)
    assert fleet.take("d", MISS) == pytest.approx(0.1 + SPACING)
    slow = Fleet(clocked_world, **{whose: Budget(rate=0.5)})
    assert slow.take("a") == 0
    assert slow.take("b") == 2.0, "or say that it is not worth waiting"


@WHOSE
@pytest.mark.parametrize(
    ("waiting", "yields"),
    [(MISS, {STALE, EARLY}), (STALE, {EARLY}), (EARLY, set())],
)
def test_what_is_refused_goes_before_what_is_less_urgent(
    clocked_world: ClockedWorld, whose: str, waiting: Urgency, yields: set[Urgency]
) -> None:
    for other in Urgency:
        fleet = Fleet(clocked_world, **{whose: Budget(concurrency=2)})
        assert fleet.taken("ab") == "ab"
        assert fleet.take("c", waiting) > 0
        fleet.release("a")
        fleet.release("b")
        assert (fleet.take("d", other) > 0) == (other in yields)
        assert fleet.take("c", waiting) == 0


@WHOSE
@pytest.mark.parametrize("waiting", [MISS, STALE])
def test_one_that_has_not_asked_again_when_it_was_to_waits_no_longer(
    clocked_world: ClockedWorld, whose: str, waiting: Urgency
) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    assert fleet.take("b", waiting) == SPACING
    fleet.release("a")
    fleet.pass_time(SPACING + LATE - EPSILON)
    assert fleet.take("c", EARLY) > 0
    fleet.pass_time(EPSILON)
    assert fleet.take("c", EARLY) == 0


@WHOSE
def test_one_who_waits_for_the_rate_is_waiting_until_it_is_due(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=5)})
    assert fleet.take("a") == 0
    fleet.pass_time(0.05)
    assert fleet.take("b", MISS) == pytest.approx(0.15 + SPACING)
    fleet.pass_time(0.15)
    assert fleet.take("c", STALE) > 0
    fleet.pass_time(SPACING)
    assert fleet.take("b", MISS) == 0


def test_one_that_was_to_ask_before_the_clock_was_set_back_is_not_waited_for(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(concurrency=1))
    assert fleet.take("a") == 0
    assert fleet.take("b", MISS) == SPACING
    fleet.release("a")
    fleet.pass_time(-(LONGEST_PAUSE_SECONDS - SPACING))
    assert fleet.take("c", STALE) > 0
    fleet.pass_time(-EPSILON)
    assert fleet.take("c", STALE) == 0


def test_who_waits_for_one_query_keeps_no_other_query_waiting(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(concurrency=9), of_query=Budget(concurrency=1))
    assert fleet.take("a", MISS) == 0
    assert fleet.take("b", MISS) > 0
    assert fleet.take("c", EARLY, query="other") == 0


# What is left.


@pytest.mark.parametrize("query", [None, "q"])
def test_everything_goes_soon_after_the_last_load(clocked_world: ClockedWorld, query: str | None) -> None:
    fleet = Fleet(clocked_world, Budget(rate=50), Budget(rate=50))
    assert fleet.taken("a") == "a"
    assert fleet.lives_ms(query) == (HELD, 20 + 80 + 250)
    fleet.pass_time(1)
    assert fleet.renew("a") == SHARE_SECONDS
    assert fleet.lives_ms(query)[0] == HELD
    slow = Fleet(clocked_world, Budget(rate=0.1), Budget(rate=0.1))
    assert slow.taken("ab") == "a"
    assert slow.lives_ms(query) == (HELD, 10_000 + 250)
    fleet.release("a")
    slow.release("a")
    fleet.pass_time(11)
    assert clocked_world.client.keys(f"{fleet.namespace}:*") == clocked_world.client.keys(f"{slow.namespace}:*") == []


@pytest.mark.parametrize("query", [None, "q"])
def test_who_waits_for_room_alone_leaves_nothing_either(clocked_world: ClockedWorld, query: str | None) -> None:
    fleet = Fleet(clocked_world, Budget(concurrency=1), Budget(concurrency=1))
    assert fleet.taken("ab") == "a"
    assert fleet.lives_ms(query) == (HELD, 250)


def test_a_query_s_name_is_no_other_key() -> None:
    names = [None, "pace", "shares", "q", "q.pace"]
    keys: list[Any] = [key for name in names for key in budget_keys("ns", name)]
    assert len(set(keys)) == len(keys)
    assert {key.partition("{")[2].partition("}")[0] for key in keys} == {"budget"}
