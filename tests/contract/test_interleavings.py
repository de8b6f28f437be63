"""Every order in which two workers and an invalidation can meet between their scripts: enumerated, not drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from api_client.lease import AcquireStatus, CommitStatus
from tests.support.lease_world import World

A, B = b"worker-A", b"worker-B"
Step: TypeAlias = str
# One actor's steps, in its own order: "acquire A" is worker A's, "lapse" a pause longer than any lease.
FIRST_WORKER = ("acquire A", "commit A")
SECOND_WORKER = ("claim", "acquire B", "commit B")
SCENES: dict[str, tuple[tuple[Step, ...], ...]] = {
    "two workers": (FIRST_WORKER, SECOND_WORKER, ("lapse",)),
    "an invalidation": (FIRST_WORKER, SECOND_WORKER, ("invalidate",)),
    "a hard invalidation": (FIRST_WORKER, SECOND_WORKER, ("invalidate hard",)),
    "an invalidation and a pause": (FIRST_WORKER, ("claim", "acquire B", "commit B"), ("invalidate",), ("lapse",)),
    "a hard one and a pause": (FIRST_WORKER, ("claim", "acquire B", "commit B"), ("invalidate hard",), ("lapse",)),
    "an eviction": (FIRST_WORKER, SECOND_WORKER, ("invalidate",), ("evict record",)),
    "an eviction of the entry": (FIRST_WORKER, ("acquire B", "commit B"), ("invalidate",), ("evict entry", "lapse")),
    "both kinds": (FIRST_WORKER, ("acquire B", "commit B"), ("invalidate", "invalidate hard"), ("lapse",)),
    "a repeated commit": ((*FIRST_WORKER, "commit A"), SECOND_WORKER, ("invalidate",)),
}


def orders(actors: Sequence[tuple[Step, ...]]) -> Iterator[tuple[Step, ...]]:
    """All interleavings of the actors' steps."""
    if not any(actors):
        yield ()
    for index, steps in enumerate(actors):
        if steps:
            left = [*actors[:index], steps[1:], *actors[index + 1 :]]
            for rest in orders(left):
                yield steps[0], *rest


@dataclass(slots=True)
class Scene:
    """One order, played: who acquired when, what was invalidated when, and what must be true after each step."""

    world: World
    clock: int = 0
    began: dict[bytes, int] = field(default_factory=dict)
    tokens: dict[bytes, int] = field(default_factory=dict)
    newest: bytes = b""
    committed: set[bytes] = field(default_factory=set)
    soft_at: int = -1
    hard_at: int = -1
    highest: int = 0

    def play(self, step: Step) -> None:
        self.clock += 1
        word, _, who = step.partition(" ")
        actions: dict[str, Callable[[str], None]] = {
            "claim": lambda _: [self.world.claim(f"claim-{self.clock}"), None][1],
            "acquire": self._acquire,
            "commit": self._commit,
            "invalidate": self._invalidate,
            "lapse": lambda _: self.world.pass_time(10_000),
            "evict": self._evict,
        }
        actions[word](who)
        self._check()

    def _acquire(self, who: str) -> None:
        nonce = f"worker-{who}".encode()
        reply = self.world.acquire(nonce, number=self.highest)  # a message for the entry that is there
        if reply.status is AcquireStatus.ACQUIRED:
            assert reply.token > max(self.tokens.values(), default=0)
            self.began[nonce], self.tokens[nonce], self.newest = self.clock, reply.token, nonce

    def _commit(self, who: str) -> None:
        nonce = f"worker-{who}".encode()
        if nonce not in self.tokens:
            return
        before = self.world.client.get(self.world.key.entry)
        status = self.world.commit(self.tokens[nonce], nonce)
        if self.world.client.get(self.world.key.entry) == before:
            assert nonce in self.committed or not status.accepted
            return
        assert status.accepted
        assert nonce == self.newest, "I1: only the newest of all who ever acquired"
        assert nonce not in self.committed, "I1: once"
        assert self.began[nonce] > self.hard_at, "I3: after a hard invalidation nothing is stored"
        assert (status is CommitStatus.ACCEPTED_AS_STALE) == (self.began[nonce] < self.soft_at)
        self.committed.add(nonce)

    def _invalidate(self, how: str) -> None:
        generation = self.world.invalidate(hard=how == "hard")
        assert generation > max(self.tokens.values(), default=0)
        self.soft_at = self.clock
        if how == "hard":
            self.hard_at = self.clock
            self.highest = 0

    def _evict(self, what: str) -> None:
        self.world.client.delete(getattr(self.world.key, what))
        if what == "entry":
            self.highest = 0

    def _check(self) -> None:
        entry = self.world.entry()
        if entry is None:
            return
        assert entry.token >= self.highest, "I2: an entry's token never goes back"
        self.highest = entry.token
        nonce = next((nonce for nonce, token in self.tokens.items() if token == entry.token), None)
        if (self.began[nonce] if nonce else 0) < self.soft_at:
            assert entry.generation > entry.token, "I3: read before an invalidation, so not fresh"
            assert entry.soft_expiry_us <= self.world.now_us()


@pytest.mark.parametrize("entry_there", [False, True])
@pytest.mark.parametrize("scene", list(SCENES))
def test_one_winner_no_token_back_no_invalidation_lost_in_any_order(
    world: World, scene: str, entry_there: bool
) -> None:
    played = 0
    for order in orders(SCENES[scene]):
        here = World(world.client, world.store)
        if entry_there:
            here.plant(1)
        stage = Scene(here, highest=1 if entry_there else 0)
        for step in order:
            stage.play(step)
        played += 1
    assert played >= 60


def test_without_a_pause_or_an_invalidation_the_first_worker_to_acquire_commits(world: World) -> None:
    for order in orders((FIRST_WORKER, ("acquire B", "commit B"))):
        here = World(world.client, world.store)
        stage = Scene(here)
        for step in order:
            stage.play(step)
        assert len(stage.committed) >= 1
        assert here.state() == "idle"
