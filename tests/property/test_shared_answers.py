"""The fast paths of a read (tier, unchanged bytes) return what the full path would, for any header, time and draw."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from api_client import ReaderSettings
from api_client.errors import CacheError
from api_client.local.entry import NOT_KEPT
from api_client.local.tier import LocalTier
from api_client.observe.events import ReaderEvents
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import Flag, Header, Smoothed, encode
from api_client.protocol.keys import make_key
from api_client.protocol.model import ReadResult
from api_client.protocol.payload import Packed, pack
from api_client.protocol.payload import encode as encode_payload
from api_client.read.core import ReadCore
from api_client.read.evaluate import ANY, Freshness
from api_client.transport.health import NodeHealth
from api_client.trigger.backlog import Trigger
from api_client.trigger.suppression import TriggerSuppressor
from tests.support.internals import decoded_of, is_filling

KEY = make_key("ns", "q", {"a": 1}, 1)
OTHER = make_key("ns", "q", {"a": 2}, 1)
REDIS_US = 1_795_262_400_000_000
MAX_BYTES = 4_096


class Publisher:
    """Takes the triggers of reads while there is room."""

    def __init__(self, has_room: bool) -> None:
        self.has_room = has_room
        self.taken: list[Trigger] = []

    def submit(self, trigger: Trigger) -> bool:
        return self.submit_all([trigger])[0]

    def submit_all(self, triggers: list[Trigger]) -> list[bool]:
        self.taken += triggers
        return [self.has_room] * len(triggers)


class Tracking:
    """A link that is up."""

    def start(self) -> None:
        pass


@dataclass
class Reader:
    """A core with dependencies of its own: the same time for all, and draws from one seed."""

    core: ReadCore
    publisher: Publisher

    @classmethod
    def new(cls, now: float, *, has_room: bool, has_tier: bool, knows_unchanged: bool = False) -> Reader:
        health, publisher, tier = NodeHealth(), Publisher(has_room), None
        health.clock.sync(REDIS_US, asked_at=now)
        if has_tier:
            tier = LocalTier(max_entries=10, max_bytes=10**6, max_age_seconds=60.0)
            tier.resume()
        link = SimpleNamespace(routes=SimpleNamespace(clock=health.clock))
        core = ReadCore(
            ReaderSettings(max_value_bytes=MAX_BYTES), link, publisher,  # type: ignore[arg-type]
            TriggerSuppressor(monotonic=monotonic_seconds), ReaderEvents(), tier,
            Tracking() if has_tier else None,  # type: ignore[arg-type]
        )  # fmt: skip
        if not knows_unchanged:
            decoded_of(core).get = lambda *_: None  # type: ignore[method-assign]
        return cls(core, publisher)

    def serve(self, raw: bytes | None, type_: Any, freshness: Freshness, seed: int) -> Any:
        return outcome(lambda: self.core.serve(KEY, raw, freshness, type_, self.core.begin_fill(KEY)), seed)


def outcome(call: Any, seed: int) -> Any:
    random.seed(seed)
    try:
        return call()
    except CacheError as error:
        return type(error), str(error)


payloads = st.sampled_from([
    encode_payload(value)
    for value in (None, True, 1, 1.5, "text", b"bytes", [1, 2], {"a": [1]}, "x" * MAX_BYTES, [[1], {"b": "c"}],
                  {"a": 1, "b": None}, [{"a": 1}, {"b": "c", "d": 1.5}], [{"a": 1}, {"b": {}}], [], {}, [{}])
] + [b"", b"\xc1", b"\x92\x01"])  # fmt: skip
seconds = st.floats(0, 1e4, width=32)
headers = st.builds(
    Header,
    token=st.integers(1, 2**53 - 1),
    generation=st.sampled_from([0, 2**52]),
    # Around now: stale, in the early window, fresh for long.
    soft_expiry_us=st.integers(-20_000_000, 20_000_000).map(lambda left_us: REDIS_US + left_us)
    | st.just(REDIS_US + 10**12),
    nonce=st.just(b"n" * 8),
    read_started_us=st.integers(0, 10**8).map(lambda age_us: REDIS_US - age_us),
    fetched_at_us=st.just(REDIS_US),
    ttl_seconds=seconds | st.just(math.inf),
    delta=st.builds(Smoothed, seconds | st.sampled_from([math.nan, math.inf]), seconds),
    run=st.builds(Smoothed, seconds, seconds),
    beta=st.floats(0, 10, width=32) | st.sampled_from([math.nan, math.inf, -1.0]),
    degree=st.integers(0, 100),
    sigma=st.just(1.0),
    draw_digits=st.sampled_from([0, 1, 6]),
    flags=st.sampled_from([0, 0, 0, int(Flag.HANDOFF)]),
)


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    content, header = draw(payloads), draw(headers)
    if draw(st.booleans()):
        content, is_compressed, _ = pack(Packed(content * draw(st.sampled_from([1, 1, 2_000]))), 1)
        header = Header(**{**_fields(header), "is_compressed": is_compressed})
    raw = encode(header, draw(st.sampled_from([KEY, KEY, KEY, OTHER])).digest, content)
    return draw(st.sampled_from([raw, raw, raw, raw, raw[:50], raw[:110], b"", b"\xc7X\x02" + raw[3:]]))


def _fields(header: Header) -> dict[str, Any]:
    return {name: getattr(header, name) for name in header.__struct_fields__}


types = st.sampled_from(
    [Any, Any, int, str, list[int], dict[str, list[int]], list[dict[str, Any]], str | None, tuple[int, ...]]
)
seeds = st.integers(0, 2**32)


def same(one: Any, other: Any) -> bool:
    # By text, since NaN is not equal to itself.
    return repr(one) == repr(other)


@given(entries(), st.lists(st.tuples(types, seeds, st.floats(0, 20)), min_size=2, max_size=5), st.booleans())
@settings(max_examples=400, deadline=None)
def test_the_same_bytes_give_the_same_result_again(
    raw: bytes, reads: list[tuple[Any, int, float]], has_room: bool
) -> None:
    now = 1_000.0
    with patch("time.monotonic", lambda: now):
        sharing = Reader.new(now, has_room=has_room, has_tier=False, knows_unchanged=True)
        alone = Reader.new(now, has_room=has_room, has_tier=False)
        for type_, seed, after_seconds in reads:
            now += after_seconds
            expected = alone.serve(raw, type_, ANY, seed)
            assert same(sharing.serve(bytes(bytearray(raw)), type_, ANY, seed), expected)
        assert sharing.publisher.taken == alone.publisher.taken


@given(entries(), types, st.lists(st.tuples(types, seeds, st.floats(0, 20)), min_size=1, max_size=5), st.booleans())
@settings(max_examples=400, deadline=None)
def test_the_in_process_tier_returns_what_a_read_from_redis_would(
    raw: bytes, first_type: Any, reads: list[tuple[Any, int, float]], has_room: bool
) -> None:
    now = 1_000.0
    with patch("time.monotonic", lambda: now):
        near = Reader.new(now, has_room=has_room, has_tier=True)
        far = Reader.new(now, has_room=has_room, has_tier=False)
        assert same(near.serve(raw, first_type, ANY, 0), far.serve(raw, first_type, ANY, 0))
        assert not is_filling(near.core.tier), "each read that began has ended"
        for type_, seed, after_seconds in reads:
            now += after_seconds
            local = outcome(lambda type_=type_: near.core.serve_local(KEY, ANY, type_), seed)
            if local is None:
                continue
            quiet = outcome(lambda type_=type_: near.core.try_local_fast_path(KEY, type_), seed)
            expected = outcome(lambda type_=type_: far.core.serve(KEY, raw, ANY, type_, None), seed)
            assert same(local, expected)
            if quiet is not NOT_KEPT:
                assert same(quiet, expected.value if isinstance(expected, ReadResult) else expected)
        assert near.publisher.taken == far.publisher.taken


def parts(value: Any) -> Iterator[Any]:
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(part)


@given(entries(), types, seeds)
@settings(max_examples=200, deadline=None)
def test_no_mutable_value_is_returned_to_two_callers(raw: bytes, type_: Any, seed: int) -> None:
    now = 1_000.0
    with patch("time.monotonic", lambda: now):
        far = Reader.new(now, has_room=True, has_tier=False, knows_unchanged=True)
        near = Reader.new(now, has_room=True, has_tier=True)
        answers = [reader.serve(raw, type_, ANY, seed) for reader in (far, near) for _ in range(4)]
        answers += [outcome(lambda: near.core.serve_local(KEY, ANY, type_), seed) for _ in range(2)]
        values = [one.value for one in answers if isinstance(one, ReadResult)]
        values += [outcome(lambda: near.core.try_local_fast_path(KEY, type_), seed) for _ in range(2)]
        changeable = [part for value in values for part in parts(value) if isinstance(part, list | dict)]
        assert len({id(value) for value in changeable}) == len(changeable)
