"""Bytes that come again are not decoded again; what has changed by a bit is."""

from __future__ import annotations

from typing import Any

import pytest

from api_client.local.unchanged import MAX_BYTES, MAX_YOUNG, UnchangedEntryCache
from api_client.protocol import payload
from api_client.protocol.entry import Flag, Header, Smoothed, encode
from api_client.protocol.keys import CacheKey, make_key

ROWS = [{"name": "Ann"}, {"name": "Bob"}]


def key(number: int = 0) -> CacheKey:
    return make_key("ns", "q", {"number": number}, 1)


def entry(number: int = 0, value: Any = ROWS, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "token": 1, "generation": 0, "soft_expiry_us": 10**15, "nonce": b"n" * 8, "read_started_us": 1,
        "fetched_at_us": 2, "ttl_seconds": 60.0, "delta": Smoothed(0.1, 0), "run": Smoothed(0.1, 0), "beta": 1.0,
        "degree": 0, "sigma": 1.0,
    }  # fmt: skip
    return encode(Header(**(fields | changes)), key(number).digest, payload.encode(value))


@pytest.fixture
def unchanged() -> UnchangedEntryCache:
    return UnchangedEntryCache(2**20)


def known(unchanged: UnchangedEntryCache, raw: bytes, number: int = 0, type_: Any = Any) -> Any:
    """The value that is kept of these bytes; None: nothing is."""
    found = unchanged.get(key(number), bytes(bytearray(raw)), type_)
    return None if found is None or found.entry is None else found.entry.value


def test_bytes_are_decoded_when_they_come_a_second_time_and_then_no_more(
    unchanged: UnchangedEntryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known(unchanged, entry()) is None
    first = known(unchanged, entry())
    monkeypatch.setattr(payload, "decode", None)
    assert first == ROWS
    assert known(unchanged, entry()) is first


@pytest.mark.parametrize(
    "changed",
    [entry(generation=2), entry(soft_expiry_us=5), entry(token=2), entry(value=[{"name": "Ann"}, {"name": "Bos"}])],
)
def test_what_was_invalidated_or_loaded_again_is_new(unchanged: UnchangedEntryCache, changed: bytes) -> None:
    for _ in range(2):
        known(unchanged, entry())
    assert known(unchanged, changed) is None
    assert known(unchanged, changed) == payload.decode(changed[88:], Any, "q")


def test_another_key_s_bytes_under_this_key_are_never_shared(unchanged: UnchangedEntryCache) -> None:
    assert [known(unchanged, entry(1), 0) for _ in range(3)] == [None] * 3


def test_a_handoff_is_for_those_alone_who_waited(unchanged: UnchangedEntryCache) -> None:
    assert [known(unchanged, entry(flags=Flag.HANDOFF)) for _ in range(3)] == [None] * 3


def test_the_oldest_are_forgotten_and_those_in_use_are_not(unchanged: UnchangedEntryCache) -> None:
    for _ in range(2):
        known(unchanged, entry(0), 0)
        known(unchanged, entry(1), 1)
    for number in range(2, 3 * MAX_YOUNG):
        known(unchanged, entry(number), number)
        assert known(unchanged, entry(0), 0) == ROWS
        assert len(unchanged._young) + len(unchanged._old) <= 2 * MAX_YOUNG + 1
    assert known(unchanged, entry(1), 1) is None


def test_of_large_ones_the_last_is_known(unchanged: UnchangedEntryCache) -> None:
    large = "x" * MAX_BYTES
    assert [known(unchanged, entry(0, large), 0) for _ in range(2)] == [None, large]
    assert known(unchanged, entry(1, large), 1) is None
    assert known(unchanged, entry(0, large), 0) is None
    assert (unchanged._young, unchanged._old) == ({}, {})
