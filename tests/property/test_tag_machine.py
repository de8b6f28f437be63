"""Tags on a real Redis: runs of several keys and invalidations of several tags, their steps in any order.

Runs register by the worker's own code; invalidations and their takeovers are the product's own plans, one call at a
time. Any of them may stop forever. A value is the version of the graph that its load has seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as play

from api_client.protocol import lease, tags
from api_client.protocol.entry import decode_header, encode
from api_client.protocol.keys import make_key, pending_tags_key, tag_clock_key
from api_client.protocol.lease import AcquireStatus, Call, CommitStatus
from api_client.protocol.messages import RefreshReason, item_for
from api_client.protocol.tags import TagWalk
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from refresher.flow import registration
from refresher.flow.run import LoadedEntry, Run
from refresher.queries import Registry, query
from refresher.settings import WorkerSettings
from tests.support.lease_steps import StepByStep
from tests.support.lease_world import HARD_TTL_SECONDS, LEASE_SECONDS, RETENTION_SECONDS, World, a_header
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS

STEPS, EXAMPLES = (120, 5_000) if IS_LONG else (80, 60)
KEYS = 3
TAGS = ("a", "b")
TAGS_OF = (("a",), ("a", "b"), ("b",))
REGISTRY = Registry()
query("tagged", ttl=60, grace=60, into=REGISTRY)(lambda tx, n: n)
_numbers = itertools.count()


class Steps(StepByStep):
    """The steps of a worker."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store

    def run(self, call: Call[Any]) -> Any:
        return self._store.run(call)


@dataclass
class Load:
    """A run, and its progress."""

    key: int
    run: Run
    version: int = -1
    is_registered: bool = False


@dataclass
class Invalidation:
    """An invalidation of tags, after a write that made ``version``; or a worker's continuation of one."""

    version: int
    names: tuple[str, ...]
    hard: bool
    rounds: Any
    calls: list[Call[Any]] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)


class TagMachine(RuleBasedStateMachine):
    """Several keys and tags in a namespace of their own."""

    client: redis.Redis
    register: Callable[..., Any] = staticmethod(registration.register)

    @initialize()
    def begin(self) -> None:
        self.settings = WorkerSettings(namespace=f"machine-{next(_numbers)}")
        self.store = LeaseStore(self.client)
        keys = [make_key(self.settings.namespace, "tagged", {"n": n}, 1) for n in range(KEYS)]
        self.worlds = [World(self.client, self.store, key) for key in keys]
        self.graph = 0
        self.loads: list[Load] = []
        self.under_way: list[Invalidation] = []
        self.kept: dict[bytes, Invalidation] = {}
        self.done: list[Invalidation] = []

    @rule(n=st.integers(0, KEYS - 1), clock_first=st.booleans())
    def acquire(self, n: int, clock_first: bool) -> None:
        read = tags.read_clock(self.settings.namespace)
        clock = self.store.run(read) if clock_first else 0
        nonce = f"{next(_numbers):08}".encode()
        claimed = self.worlds[n].claim(f"claim-{nonce.decode()}")
        reply = self.worlds[n].acquire(nonce, number=claimed.number)
        if reply.status is AcquireStatus.ACQUIRED:
            clock = clock if clock_first else self.store.run(read)
            item = item_for(self.worlds[n].key, 1, RefreshReason.STALE)
            run = Run(item, self.worlds[n].key, REGISTRY.find("tagged", 1), nonce, reply, 0.0, lambda: 0.0, clock)
            self.loads.append(Load(n, run))

    @precondition(lambda self: self.loads)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        """Take the next step of a run: load, register, commit."""
        load = data.draw(st.sampled_from(self.loads))
        world = self.worlds[load.key]
        if load.version < 0:
            load.version = self.graph
        elif not load.is_registered:
            self.register(Steps(self.store), self.settings, [(load.run, LoadedEntry(b"", 60.0, TAGS_OF[load.key]))])
            load.is_registered = True
        else:
            self.loads.remove(load)
            raw = encode(a_header(load.run.token, load.run.nonce), world.key.digest, str(load.version).encode())
            self.store.run(_commit(load.run, raw))

    @rule(names=st.lists(st.sampled_from(TAGS), min_size=1, unique=True), hard=st.booleans())
    def write(self, names: list[str], hard: bool) -> None:
        self.graph += 1
        walk = TagWalk(self.settings.namespace, retention_seconds=RETENTION_SECONDS)
        self.under_way.append(Invalidation(self.graph, tuple(names), hard, walk.invalidate(names, hard=hard)))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def invalidate(self, data: st.DataObject) -> None:
        """Make the next call of an invalidation."""
        one = data.draw(st.sampled_from(self.under_way))
        if not one.calls:
            one.calls, one.replies = list(next(one.rounds)), []
        call = one.calls[len(one.replies)]
        if call.script == "tag_keep":
            self.kept.setdefault(call.args[0], one)  # type: ignore[arg-type]
        one.replies.append(self.store.run(call))
        if len(one.replies) == len(one.calls):
            try:
                one.calls, one.replies = list(one.rounds.send(one.replies)), []
            except StopIteration:
                self.under_way.remove(one)
                self.done.append(one)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def invalidator_dies(self, data: st.DataObject) -> None:
        self.under_way.remove(data.draw(st.sampled_from(self.under_way)))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def worker_takes_over(self, data: st.DataObject) -> None:
        """Continue a pending invalidation; its own client may go on, too."""
        pending = sorted(self.client.zrange(pending_tags_key(self.settings.namespace), 0, -1))
        if pending:
            one = self.kept[chosen := data.draw(st.sampled_from(pending))]
            walk = TagWalk(self.settings.namespace, retention_seconds=RETENTION_SECONDS)
            self.under_way.append(Invalidation(one.version, one.names, one.hard, walk.resume(chosen)))

    @rule(n=st.integers(0, KEYS - 1), what=st.sampled_from(["lease", "record", "entry", "clock"]))
    def redis_loses(self, n: int, what: str) -> None:
        world = self.worlds[n]
        if what == "lease":
            world.pass_time(2 * LEASE_SECONDS)
        else:
            clock = tag_clock_key(self.settings.namespace)
            self.client.delete({"record": world.key.record, "entry": world.key.entry, "clock": clock}[what])

    @invariant()
    def no_fresh_entry_is_older_than_an_invalidation_that_has_returned(self) -> None:
        for world, names in zip(getattr(self, "worlds", ()), TAGS_OF, strict=False):
            raw = self.client.get(world.key.entry)
            if raw is None:
                continue
            header = decode_header(raw, world.key.digest)
            version, is_fresh = int(raw[header.length :]), header.generation <= header.token
            for one in self.done:
                if version < one.version and set(names) & set(one.names):
                    assert not is_fresh, f"{version} is fresh after {one.version}"
                    assert not one.hard, f"{version} is there after {one.version}, a hard one"

    def teardown(self) -> None:
        if hasattr(self, "settings"):
            for name in self.client.scan_iter(f"{self.settings.namespace}:*"):
                self.client.delete(name)


def _commit(run: Run, raw: bytes) -> Call[CommitStatus]:
    return lease.commit(
        run.key, token=run.token, nonce=run.nonce, entry=raw, hard_ttl_seconds=HARD_TTL_SECONDS,
        retention_seconds=RETENTION_SECONDS,
    )  # fmt: skip


@pytest.mark.longer
@pytest.mark.timeout((60 if IS_LONG else 15) * MAX_WAIT_SECONDS)
def test_no_order_of_runs_and_invalidations_keeps_an_old_value_fresh(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tags, "PAGE_MEMBERS", 2)
    with redis.Redis.from_url(redis_server.url()) as client:
        play(
            type("Machine", (TagMachine,), {"client": client}),
            settings=settings(
                max_examples=EXAMPLES, stateful_step_count=STEPS, phases=(Phase.generate, Phase.shrink),
                derandomize=not IS_LONG, print_blob=True, database=None, deadline=None,
            ),
        )  # fmt: skip


class First:
    """Draws the first of what may be drawn."""

    def draw(self, strategy: Any) -> Any:
        return strategy.elements[0]


@pytest.mark.parametrize("hard", [False, True])
def test_the_machine_sees_a_run_that_does_not_register(redis_server: RedisServer, *, hard: bool) -> None:
    with redis.Redis.from_url(redis_server.url()) as client:
        kinds = TagMachine, type("Unregistered", (TagMachine,), {"register": staticmethod(lambda *_: {})})
        for kind in kinds:
            machine: Any = type("Machine", (kind,), {"client": client})()
            machine.begin()
            machine.acquire(n=0, clock_first=True)
            while machine.loads:
                machine.load(data=First())
            machine.write(names=["a"], hard=hard)
            while machine.under_way:
                machine.invalidate(data=First())
            if kind is TagMachine:
                machine.no_fresh_entry_is_older_than_an_invalidation_that_has_returned()
            else:
                with pytest.raises(AssertionError, match=r"0 is fresh after 1"):
                    machine.no_fresh_entry_is_older_than_an_invalidation_that_has_returned()
            machine.teardown()
