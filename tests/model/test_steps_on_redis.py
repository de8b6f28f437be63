"""Equivalence of the model's steps and the scripts: random runs of the model are replayed on a real Redis.

Each step must return the same reply there, and leave the same state and the same entry. So Spin's proofs about the
model hold for the scripts, as far as these runs cover them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import redis

from api_client.protocol import lease
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.model.cases import ALL_LOSSES, Case, bounded
from tests.model.checker import missing_tools, simulate
from tests.support.lease_world import World
from tests.support.requirements import skip_or_fail
from tests.support.steps import STEPS
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.timeout(8 * MAX_WAIT_SECONDS)

SEEDS: Final = range(1, 51)
ANY: Final = 255
WORLDS: Final = (
    Case("in time", "", bounded(4, 3, 2, "NO_LAPSE", "PROPERTY=5")),
    Case("ends", "", bounded(2, 3, 2, "ENDS", "REPEATS", "PROPERTY=5")),
    Case("set back", "", bounded(2, 3, 1, "ENDS", "FAULTS=3", "CLOCK_STEPS_BACK", "NO_RETENTION", "PROPERTY=5")),
    Case("losses", "", bounded(4, 3, 2, "REPEATS", "FAULTS=2", *ALL_LOSSES[:3], "LATE_REQUESTS", "PROPERTY=5")),
)
# Events of the graph, the broker and the network: no steps of the record.
NO_STEP: Final = {"publish", "take", "load", "lost", "late", "read"}


class DrawnAgain(Exception):
    """A clock that was set back lets the model draw a number for a second time; the one of Redis here goes on."""


@dataclass(slots=True)
class Replay:
    """One run of the model on Redis. ``numbers`` maps the model's to the real ones; ``seen`` counts the replies.

    Where the model's clock is set back, the record's times go forward instead: that is the same for all but numbers.
    """

    world: World
    seen: Counter[str] = field(default_factory=Counter)
    numbers: dict[int, int] = field(default_factory=dict)
    was_set_back: bool = False

    def play(self, event: str) -> None:
        kind, *values = event.split("|")
        if kind in NO_STEP:
            return
        if kind in {"time", "redis"}:
            self._happen(*values[0].split(" "))
            return
        step: Callable[..., str] = getattr(self, f"_{kind}")
        assert step(*values) == "same"
        self.seen[kind] += 1

    def _number(self, model: int, real: int) -> bool:
        """Return whether a number of the model is this real one, and both are in the same order with all others.

        Raises:
            DrawnAgain: it is not, and the clock was set back.
        """
        known = self.numbers.setdefault(model, real)
        is_same = known == real and all(
            (model < other) == (real < each) for other, each in self.numbers.items() if model != other
        )
        if self.was_set_back and not is_same:
            raise DrawnAgain
        return is_same

    def _real(self, model: str) -> int:
        return self.numbers.get(int(model), int(model))

    def _is(self, *conditions: bool) -> str:
        return "same" if all(conditions) else f"differs: {conditions}"

    def _happen(self, what: str, state: str = "") -> None:
        if what in {"until", "since", "behind"}:
            assert self.world.state() == state
            self.world.pass_time(-10_000 if what == "behind" else 10_000)
            self.seen[what] += 1
        self.was_set_back |= what == "clock"
        if what in {"retention", "record", "empty"}:
            self.world.client.delete(self.world.key.record)
        if what in {"entry", "empty"}:
            self.world.client.delete(self.world.key.entry)

    def _entry(self, _: str) -> str:
        self.world.plant(1, nonce=b"nonce--0")
        return self._is(self._number(1, 1))

    def _claim(self, claim_id: str, seen: str, status: str, number: str, state: str) -> str:
        wanted = None if int(seen) == ANY else self._real(seen)
        reply = self.world.claim(f"claim-{claim_id}", seen=wanted)
        self.seen[f"claim {status}"] += 1
        return self._is(
            reply.status == int(status), self._number(int(number), reply.number), self.world.state() == state
        )

    def _republish(self, status: str, number: str) -> str:
        real = self.world.store.run(lease.republish(self.world.key, interval_seconds=0.0))
        return self._is(real == (self._real(number) if status == "1" else 0))

    def _unclaim(self, claim_id: str, status: str, state: str) -> str:
        return self._is(self.world.unclaim(f"claim-{claim_id}") == (status == "1"), self.world.state() == state)

    def _acquire(self, nonce: str, claim_number: str, ticket: str, status: str, number: str, state: str) -> str:
        name = f"ticket-{ticket}" if ticket != "0" else ""
        reply = self.world.acquire(_nonce(nonce), number=self._real(claim_number), ticket=name)
        self.seen[f"acquire {status}"] += 1
        same_number = status == "3" or self._number(int(number), reply.token)
        return self._is(reply.status == int(status), same_number, self.world.state() == state)

    def _commit(self, nonce: str, token: str, status: str, state: str) -> str:
        real = self.world.commit(self._real(token), _nonce(nonce))
        self.seen[f"commit {status}"] += 1
        entry = self.world.entry()
        is_there = not real.accepted or (entry is not None and entry.token >= self._real(token))
        return self._is(real == int(status), self.world.state() == state, is_there)

    def _renew(self, nonce: str, token: str, status: str) -> str:
        return self._is((self.world.renew(self._real(token), _nonce(nonce)) > 0) == (status == "1"))

    def _retry(self, nonce: str, token: str, status: str) -> str:
        return self._is(self.world.retry(self._real(token), _nonce(nonce), f"ticket-{nonce}") == (status == "1"))

    def _fail(self, nonce: str, token: str, status: str) -> str:
        return self._is(self.world.fail(self._real(token), _nonce(nonce)) == (status == "1"))

    def _hand_back(self, nonce: str, token: str, status: str, number: str) -> str:
        real = self.world.hand_back(self._real(token), _nonce(nonce))
        return self._is(real == (self._real(number) if status == "1" else 0))

    def _invalidate(self, hard: str, number: str, state: str) -> str:
        real = self.world.invalidate(hard=hard == "1")
        self.seen[f"invalidate {hard}"] += 1
        return self._is(self._number(int(number), real), self.world.state() == state)


def _nonce(run: str) -> bytes:
    return f"nonce--{run}".encode()


def replays(redis_server: RedisServer, folder: Path) -> Counter[str]:
    """Play all runs; return how often each step, and each of its replies, was seen."""
    seen: Counter[str] = Counter()
    with redis.Redis.from_url(redis_server.url()) as client:
        store = LeaseStore(client)
        for case in WORLDS:
            for seed in SEEDS:
                events = simulate(case, seed, folder)
                replay = Replay(World(client, store))
                for index, event in enumerate(events):
                    try:
                        replay.play(event)
                    except DrawnAgain:
                        break
                    except AssertionError as error:
                        raise AssertionError((case.name, seed, events[: index + 1])) from error
                seen += replay.seen
    return seen


@pytest.fixture(scope="module")
def seen(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    if missing := missing_tools():
        skip_or_fail(f"not installed: {', '.join(missing)}")
    return replays(redis_server, tmp_path_factory.mktemp("ways"))


@pytest.mark.promise("Protocol", "The scripts do what the model does")
def test_each_step_has_the_same_effect_on_redis_as_in_the_model(seen: Counter[str]) -> None:
    assert {*STEPS, "until", "behind", "since"} <= set(seen)


@pytest.mark.parametrize(("step", "answers"), [("claim", 3), ("acquire", 3), ("commit", 5)])
def test_the_replayed_runs_include_each_reply_of_a_step(seen: Counter[str], step: str, answers: int) -> None:
    assert {f"{step} {number}" for number in range(1, answers + 1)} <= set(seen), seen
