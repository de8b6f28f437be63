"""The three budget scripts: grants, priorities, and the shares that a lost reply or a dead worker leaves behind."""

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
        """Release a share, and return the script's raw reply."""
        return self.world.store.run(replace(self.share(name).release(refund=False), parse=int))

    def lives_ms(self, query: str | None = None) -> tuple[int, int]:
        shares, pace = (self.world.client.pttl(key) for key in budget_keys(self.namespace, query))
        return shares, pace

    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    def taken(self, names: str, urgency: Urgency = STALE) -> str:
        """Try several loads in turn, and return the names of those that were granted."""
        return "".join(name for name in names if self.take(name, urgency) == 0)


WHOSE = pytest.mark.parametrize("whose", ["all", "of_query"])


def test_constants_and_arguments_that_the_budget_scripts_rely_on() -> None:
    assert (HELD, LONGEST_PAUSE_SECONDS) == (5_000, 0.25)
    assert Budget(rate=100).arguments == (0, 10_000, 90_000)
    assert Budget(rate=3).arguments == (0, 333_334, 0)
    assert Budget(concurrency=7).arguments == (7, 0, 0)


# Concurrency.


@WHOSE
def test_concurrent_loads_are_limited_to_the_budget(clocked_world: ClockedWorld, whose: str) -> None:
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


def test_a_repeated_take_returns_the_same_share_and_restarts_its_lifetime(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(rate=1, concurrency=1))
    assert fleet.take("a") == 0
    fleet.pass_time(SHARE_SECONDS - EPSILON)
    assert fleet.take("a") == 0, "the reply was lost"
    fleet.pass_time(SHARE_SECONDS - EPSILON)
    assert fleet.take("b") > 0
    assert fleet.renew("a") == SHARE_SECONDS


@WHOSE
def test_the_share_of_a_dead_worker_expires(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    fleet.pass_time(SHARE_SECONDS - EPSILON)
    assert fleet.take("b") > 0
    fleet.pass_time(EPSILON)
    assert fleet.take("b") == 0
    assert not fleet.release("a"), "it had ended"
    fleet.pass_time(1)
    assert fleet.take("c") > 0, "b's share is not free"


@WHOSE
def test_a_renewed_share_stays_held(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    for _ in range(4):
        fleet.pass_time(SHARE_SECONDS - 1)
        assert fleet.renew("a") == SHARE_SECONDS
        assert fleet.take("b") > 0
    assert fleet.release("a")


def test_a_released_or_expired_share_cannot_be_renewed(clocked_world: ClockedWorld) -> None:
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
def test_a_share_expires_when_the_clock_is_set_back_by_more_than_a_second(
    clocked_world: ClockedWorld, whose: str
) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    fleet.pass_time(-1)
    assert fleet.take("b") > 0, "clocks are corrected by fractions of a second"
    fleet.pass_time(-EPSILON)
    assert fleet.take("b") == 0


@pytest.mark.usefixtures("no_share_ends")
def test_concurrent_takes_never_exceed_the_concurrency_budget(client: redis.Redis) -> None:
    fleet = Fleet(World(client, LeaseStore(client)), all=Budget(concurrency=7), of_query=Budget(concurrency=5))
    names = [str(number) for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        granted = [name for name, wait in zip(names, pool.map(fleet.take, names), strict=True) if wait == 0]
        assert len(granted) == 5
        assert all(pool.map(fleet.release, granted))
    assert client.zcard(budget_keys(fleet.namespace)[0]) == client.zcard(budget_keys(fleet.namespace, "q")[0]) == 0


# Rate.


@WHOSE
def test_loads_begin_at_the_rate_and_a_refusal_returns_the_time_to_the_next(
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
def test_a_burst_is_limited_to_a_tenth_of_a_second_of_the_rate(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=50)})
    assert fleet.taken("abcdefg") == "abcde"
    fleet.pass_time(0.02)
    assert fleet.taken("hi") == "h"
    fleet.pass_time(1_000)
    assert fleet.taken("ABCDEFG") == "ABCDE", "unused loads are not saved"


def test_the_slower_of_two_rates_determines_the_wait(clocked_world: ClockedWorld) -> None:
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
def test_a_refunded_load_is_not_charged(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=1)})
    assert fleet.take("a") == 0
    assert fleet.release("a", refund=True)
    assert fleet.taken("bc") == "b"
    assert not fleet.release("a", refund=True), "once"
    assert fleet.taken("c") == ""
    assert fleet.release("b")
    fleet.pass_time(1 - EPSILON)
    assert fleet.taken("c") == "", "a load without a refund is charged"


def test_a_refund_after_the_pace_key_has_expired_changes_nothing(clocked_world: ClockedWorld) -> None:
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
def test_workers_without_a_rate_do_not_affect_the_rate_of_a_newer_release(
    clocked_world: ClockedWorld, whose: str
) -> None:
    before = Fleet(clocked_world, **{whose: Budget(concurrency=100)})
    after = Fleet(clocked_world, **{whose: Budget(concurrency=100, rate=1)}, namespace=before.namespace)
    assert after.taken("ab") == "a"
    assert before.taken("cdef") == "cdef", "they have no rate"
    assert after.taken("b") == ""
    after.pass_time(0.5)
    assert before.taken("ghij") == "ghij"
    assert after.taken("b") == "", "its pace is kept, too"
    after.pass_time(0.75)
    assert after.taken("b") == "b"


# Waiting loads.


@WHOSE
def test_refused_loads_get_staggered_waits(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(concurrency=1)})
    assert fleet.take("a") == 0
    assert [fleet.take(name) for name in "bcd"] == [SPACING, 2 * SPACING, 3 * SPACING]
    paced = Fleet(clocked_world, **{whose: Budget(rate=50, concurrency=1)})
    assert paced.take("a") == 0
    assert paced.take("b") == SPACING, "the rate has room"
    assert fleet.take("e", MISS) == SPACING, "misses have their own sequence of waits"
    assert fleet.take("f", EARLY) == SPACING
    fleet.pass_time(0.1)
    assert fleet.take("b") == SPACING
    for number in range(200):
        longest = fleet.take(str(number))
    assert longest == LONGEST_PAUSE_SECONDS
    fleet.pass_time(-0.5)
    assert fleet.take("g") == LONGEST_PAUSE_SECONDS, "after a clock set back, too"


@WHOSE
def test_loads_refused_by_the_rate_get_staggered_waits_from_the_next_due_time(
    clocked_world: ClockedWorld, whose: str
) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=5)})
    assert fleet.take("a") == 0
    assert [fleet.take(name) for name in "bc"] == pytest.approx([0.2 + SPACING, 0.2 + 2 * SPACING])
    fleet.pass_time(0.1)
    assert fleet.take("d", MISS) == pytest.approx(0.1 + SPACING)
    slow = Fleet(clocked_world, **{whose: Budget(rate=0.5)})
    assert slow.take("a") == 0
    assert slow.take("b") == 2.0, "a wait longer than the longest pause, so that the caller can abandon it"


@pytest.mark.promise("Refreshing", "In a full budget misses go before stale refreshes, and these before early ones")
@WHOSE
@pytest.mark.parametrize(
    ("waiting", "yields"),
    [(MISS, {STALE, EARLY}), (STALE, {EARLY}), (EARLY, set())],
)
def test_a_refused_load_goes_before_less_urgent_ones(
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
def test_a_refused_load_that_misses_its_retry_loses_its_priority(
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
def test_a_load_refused_by_the_rate_keeps_its_priority_until_it_is_due(clocked_world: ClockedWorld, whose: str) -> None:
    fleet = Fleet(clocked_world, **{whose: Budget(rate=5)})
    assert fleet.take("a") == 0
    fleet.pass_time(0.05)
    assert fleet.take("b", MISS) == pytest.approx(0.15 + SPACING)
    fleet.pass_time(0.15)
    assert fleet.take("c", STALE) > 0
    fleet.pass_time(SPACING)
    assert fleet.take("b", MISS) == 0


def test_a_refused_load_loses_its_priority_when_the_clock_is_set_back(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(concurrency=1))
    assert fleet.take("a") == 0
    assert fleet.take("b", MISS) == SPACING
    fleet.release("a")
    fleet.pass_time(-(LONGEST_PAUSE_SECONDS - SPACING))
    assert fleet.take("c", STALE) > 0
    fleet.pass_time(-EPSILON)
    assert fleet.take("c", STALE) == 0


def test_a_load_waiting_for_its_query_s_budget_does_not_block_other_queries(clocked_world: ClockedWorld) -> None:
    fleet = Fleet(clocked_world, all=Budget(concurrency=9), of_query=Budget(concurrency=1))
    assert fleet.take("a", MISS) == 0
    assert fleet.take("b", MISS) > 0
    assert fleet.take("c", EARLY, query="other") == 0


# Leftovers.


@pytest.mark.parametrize("query", [None, "q"])
def test_all_budget_keys_expire_soon_after_the_last_load(clocked_world: ClockedWorld, query: str | None) -> None:
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
def test_a_load_waiting_for_concurrency_alone_leaves_only_expiring_keys(
    clocked_world: ClockedWorld, query: str | None
) -> None:
    fleet = Fleet(clocked_world, Budget(concurrency=1), Budget(concurrency=1))
    assert fleet.taken("ab") == "a"
    assert fleet.lives_ms(query) == (HELD, 250)


def test_budget_keys_are_distinct_for_every_query_name() -> None:
    names = [None, "pace", "shares", "q", "q.pace"]
    keys: list[Any] = [key for name in names for key in budget_keys("ns", name)]
    assert len(set(keys)) == len(keys)
    assert {key.partition("{")[2].partition("}")[0] for key in keys} == {"budget"}
