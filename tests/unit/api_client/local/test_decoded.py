"""Cache of decoded entries: the same bytes are not decoded again, changed ones are."""

from __future__ import annotations

from typing import Any

import pytest

from api_client.local.decoded import MAX_BYTES, MAX_YOUNG, DecodedEntryCache
from api_client.protocol import payload
from api_client.protocol.entry import Flag, encode
from api_client.protocol.keys import CacheKey, make_key
from tests.support.lease_world import a_header

ROWS = [{"name": "Ann"}, {"name": "Bob"}]


def key(number: int = 0) -> CacheKey:
    return make_key("ns", "q", {"number": number}, 1)


def entry(number: int = 0, value: Any = ROWS, token: int = 1, **changes: Any) -> bytes:
    return encode(a_header(token, **changes), key(number).digest, payload.encode(value))


@pytest.fixture
def decoded() -> DecodedEntryCache:
    return DecodedEntryCache(2**20)


def known(decoded: DecodedEntryCache, raw: bytes, number: int = 0, type_: Any = Any) -> Any:
    """Return the value cached for these bytes; None if there is none."""
    found = decoded.get(key(number), bytes(bytearray(raw)), type_)
    return None if found is None or found.entry is None else found.entry.value


def test_an_entry_s_bytes_are_decoded_and_cached_when_seen_a_second_time(
    decoded: DecodedEntryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known(decoded, entry()) is None
    first = known(decoded, entry())
    monkeypatch.setattr(payload, "decode", None)
    assert first == ROWS
    assert known(decoded, entry()) is first


@pytest.mark.parametrize(
    "changed",
    [entry(generation=2), entry(soft_expiry_us=5), entry(token=2), entry(value=[{"name": "Ann"}, {"name": "Bos"}])],
)
def test_an_invalidated_or_reloaded_entry_is_decoded_anew(decoded: DecodedEntryCache, changed: bytes) -> None:
    for _ in range(2):
        known(decoded, entry())
    assert known(decoded, changed) is None
    assert known(decoded, changed) == payload.decode(changed[88:], Any, "q")


def test_another_key_s_bytes_under_this_key_are_never_shared(decoded: DecodedEntryCache) -> None:
    assert [known(decoded, entry(1), 0) for _ in range(3)] == [None] * 3


def test_a_handoff_is_never_cached_decoded(decoded: DecodedEntryCache) -> None:
    assert [known(decoded, entry(flags=Flag.HANDOFF)) for _ in range(3)] == [None] * 3


def test_the_oldest_decoded_entries_are_evicted_and_those_in_use_are_not(decoded: DecodedEntryCache) -> None:
    for _ in range(2):
        known(decoded, entry(0), 0)
        known(decoded, entry(1), 1)
    for number in range(2, 3 * MAX_YOUNG):
        known(decoded, entry(number), number)
        assert known(decoded, entry(0), 0) == ROWS
    assert known(decoded, entry(1), 1) is None


def test_a_large_decoded_entry_evicts_the_previous_large_one(decoded: DecodedEntryCache) -> None:
    large = "x" * MAX_BYTES
    assert [known(decoded, entry(0, large), 0) for _ in range(2)] == [None, large]
    assert known(decoded, entry(1, large), 1) is None
    assert known(decoded, entry(0, large), 0) is None
