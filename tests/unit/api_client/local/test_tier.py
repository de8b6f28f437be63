"""The in-process tier by itself: harmful orders of events, bounds, threads."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from api_client.local.entry import ENTRY_OVERHEAD_BYTES, MAX_COPIED_BYTES, NOT_KEPT, LocalEntry, local_entry
from api_client.local.tier import KEYS_AT_ONCE, MAX_FILLS, MAX_SECOND_CHANCES, LocalTier
from api_client.protocol.entry import Flag, Header, decode_header, encode
from api_client.protocol.keys import make_key
from api_client.protocol.payload import decode as decode_payload
from api_client.protocol.payload import encode as encode_payload
from tests.support.lease_world import a_header
from tests.support.timing import Time
from tests.support.waiting import MAX_WAIT_SECONDS

KEY, OTHER = "cache:e1:{q:1:aa}", "cache:e1:{q:1:bb}"
ONE_ENTRY_BYTES = ENTRY_OVERHEAD_BYTES + 100


def header(token: int = 1, generation: int = 0, **more: Any) -> Header:
    return a_header(token, generation=generation, **more)


def entry(token: int = 1, size: int = 100, generation: int = 0, value: Any = NOT_KEPT) -> LocalEntry:
    return LocalEntry(b"x" * size, header(token, generation), 0, value)


def made(clock: Time | None = None, *, entries: int = 100, size: int = 10**9, age: float = 1.0) -> LocalTier:
    tier = LocalTier(max_entries=entries, max_bytes=size, max_age_seconds=age, monotonic=clock or Time())
    tier.resume()
    return tier


def put(tier: LocalTier, key: str, kept: LocalEntry | None = None) -> bool:
    fill = tier.begin(key)
    return tier.fill(fill, kept or entry())


def test_an_entry_stays_in_the_tier_until_its_key_is_dropped() -> None:
    tier, kept = made(), entry()
    assert put(tier, KEY, kept)
    assert put(tier, OTHER)
    assert tier.entries.get(KEY) is kept
    tier.drop_all(["cache:e1:{q:1:cc}", KEY])
    assert list(tier.entries) == [OTHER]
    assert tier.held_bytes == ONE_ENTRY_BYTES


def test_a_tier_without_a_link_begins_no_fill_until_the_link_is_there() -> None:
    tier = LocalTier(max_entries=10, max_bytes=10**6, max_age_seconds=1.0)
    for _ in range(2):
        assert tier.is_bypassed
        assert tier.begin(KEY) is None
        tier.resume()
        assert put(tier, KEY)
        tier.bypass()


# What may happen between the GET and its reply, and must keep an old value out, and drop the one that is there.
INVALIDATIONS: dict[str, Callable[[LocalTier], None]] = {
    "the key's own message": lambda tier: tier.drop_all([OTHER, KEY]),
    "this process's own invalidation": lambda tier: tier.drop(KEY),
    "a flush": LocalTier.clear,
    "the link is lost": LocalTier.bypass,
    "the link is lost and comes back": lambda tier: (tier.bypass(), tier.resume())[0],
    "the link comes back before the loss is seen": LocalTier.resume,
}


@pytest.mark.parametrize("name", INVALIDATIONS)
def test_an_invalidation_drops_the_entry_and_a_reply_that_it_overtakes(name: str) -> None:
    tier = made()
    assert put(tier, KEY)
    fill = tier.begin(KEY)
    INVALIDATIONS[name](tier)
    assert not tier.fill(fill, entry())
    assert tier.entries == {}
    assert tier.held_bytes == 0


def test_a_read_begun_after_the_invalidation_is_kept_and_one_begun_before_is_not() -> None:
    tier, new = made(), entry(token=2)
    before = tier.begin(KEY)
    tier.drop(KEY)
    after = tier.begin(KEY)
    tier.drop(OTHER)
    assert tier.fill(after, new)
    assert not tier.fill(before, entry(token=1))
    assert tier.entries[KEY] is new


def test_a_fill_never_replaces_an_entry_with_an_older_one() -> None:
    tier, new, invalidated = made(), entry(token=2), entry(token=2, generation=3)
    early, late, latest, last = (tier.begin(KEY) for _ in range(4))
    assert tier.fill(late, new)
    assert not tier.fill(early, entry(token=1))  # its reply was on its way for longer
    assert tier.entries[KEY] is new
    assert tier.fill(latest, invalidated)
    assert not tier.fill(last, entry(token=2))
    assert tier.entries[KEY] is invalidated


def test_a_newer_entry_past_its_age_does_not_keep_an_older_one_out() -> None:
    clock = Time()
    tier = made(clock)
    assert put(tier, KEY, entry(token=9))
    clock.now += 1.0
    assert put(tier, KEY, entry(token=1))


def test_the_age_counts_from_before_the_get_was_sent() -> None:
    clock = Time()
    tier, kept = made(clock, age=1.0), entry()
    fill = tier.begin(KEY)
    clock.now += 0.6
    assert tier.fill(fill, kept)
    assert kept.expires_at == pytest.approx(1001.0)


@pytest.mark.parametrize(("earliest_at", "quiet_until"), [(1000.2, 1000.2), (5000.0, 1001.0), (0.0, 0.0)])
def test_a_hit_needs_no_decision_until_its_age_or_a_refresh_is_due(earliest_at: float, quiet_until: float) -> None:
    tier, kept = made(age=1.0), LocalEntry(b"x" * 100, header(), earliest_at)
    assert put(tier, KEY, kept)
    assert kept.quiet_until == pytest.approx(quiet_until)


def test_a_reply_that_took_longer_than_the_maximum_age_is_not_kept() -> None:
    clock = Time()
    tier = made(clock, age=1.0)
    fill = tier.begin(KEY)
    clock.now += 1.0
    assert not tier.fill(fill, entry())
    assert tier.entries == {}


def nothing_is_under_way(tier: LocalTier) -> bool:
    """Return whether as many reads can begin as may be under way: one more would end all of them."""
    first, *_ = [tier.begin(f"read {number}") for number in range(MAX_FILLS)]
    return tier.fill(first, entry())


def test_a_fill_works_once_and_abandoning_it_afterwards_is_harmless() -> None:
    tier = made()
    fill = tier.begin(KEY)
    assert tier.fill(fill, entry())
    assert not tier.fill(fill, entry(token=2))
    tier.abandon(fill)
    assert list(tier.entries) == [KEY]


def test_an_abandoned_read_leaves_nothing_and_disturbs_no_other() -> None:
    tier = made()
    abandoned, other = tier.begin(KEY), tier.begin(KEY)
    tier.abandon(abandoned)
    assert not tier.fill(abandoned, entry())
    assert tier.fill(other, entry())
    assert nothing_is_under_way(tier)


def test_fills_under_way_are_bounded_and_a_forgotten_fill_is_refused() -> None:
    tier = made()
    first = tier.begin(KEY)
    for number in range(MAX_FILLS):
        tier.begin(f"{KEY}{number}")
    assert not tier.fill(first, entry())
    assert put(tier, OTHER)


def test_a_handoff_is_never_kept_and_drops_the_older_entry() -> None:
    tier = made()
    assert put(tier, KEY)
    fill = tier.begin(KEY)
    assert not tier.fill(fill, LocalEntry(b"x" * 100, header(2, flags=Flag.HANDOFF), 0))
    assert tier.entries == {}  # what was there before is old now


def test_an_entry_larger_than_the_tier_is_not_kept_and_evicts_no_other_key() -> None:
    tier = made(size=3 * ONE_ENTRY_BYTES)
    assert put(tier, OTHER)
    assert put(tier, KEY)
    assert not put(tier, KEY, entry(token=2, size=3 * ONE_ENTRY_BYTES))
    assert list(tier.entries) == [OTHER]  # and what KEY had before is gone: it was old
    assert tier.held_bytes == ONE_ENTRY_BYTES


@pytest.mark.parametrize("bound", [{"entries": 3}, {"size": 3 * ONE_ENTRY_BYTES}])
def test_the_oldest_unused_entry_is_evicted_first(bound: dict[str, int]) -> None:
    tier = made(**bound)
    for key in "abc":
        assert put(tier, key)
    tier.entries["a"].used = True
    assert put(tier, "d")
    assert list(tier.entries) == ["c", "d", "a"]
    for key in "efg":
        assert put(tier, key)
    assert list(tier.entries) == ["e", "f", "g"]  # the second chance is used up
    assert tier.held_bytes == 3 * ONE_ENTRY_BYTES


def test_a_large_entry_evicts_as_many_entries_as_it_needs() -> None:
    tier = made(size=4 * ONE_ENTRY_BYTES)
    for key in "abcd":
        assert put(tier, key)
    assert put(tier, "large", entry(size=2 * ONE_ENTRY_BYTES))
    assert list(tier.entries) == ["d", "large"]
    assert tier.held_bytes <= 4 * ONE_ENTRY_BYTES


def test_an_entry_past_its_age_gets_no_second_chance() -> None:
    clock = Time()
    tier = made(clock, entries=2)
    assert put(tier, "old")
    tier.entries["old"].used = True
    clock.now += 1.0
    assert put(tier, "a")
    assert put(tier, "b")
    assert list(tier.entries) == ["a", "b"]


def test_a_fill_of_a_tier_in_full_use_examines_a_bounded_number_of_entries() -> None:
    tier = made(entries=1000)
    for number in range(1000):
        assert put(tier, str(number))
        tier.entries[str(number)].used = True
    assert put(tier, KEY)
    assert sum(kept.used for kept in tier.entries.values()) == 1000 - MAX_SECOND_CHANCES - 1
    assert len(tier.entries) == 1000


def test_entries_past_their_age_are_dropped() -> None:
    clock = Time()
    tier = made(clock, entries=10_000)
    for number in range(KEYS_AT_ONCE + 10):
        assert put(tier, str(number))
    clock.now += 0.5
    assert put(tier, KEY)
    tier.drop_expired()
    assert len(tier.entries) == KEYS_AT_ONCE + 11
    clock.now += 0.5
    for _ in range(3):
        tier.drop_expired()
    assert list(tier.entries) == [KEY]
    assert tier.held_bytes == ONE_ENTRY_BYTES


def test_a_long_list_of_keys_is_dropped_whole() -> None:
    tier = made(entries=10_000)
    keys = [f"k{number}" for number in range(2 * KEYS_AT_ONCE + 1)]
    for key in keys:
        assert put(tier, key)
    fill = tier.begin("late")
    tier.drop_all([*keys, "late"])
    assert tier.entries == {}
    assert not tier.fill(fill, entry())
    assert tier.held_bytes == 0


def test_the_dictionary_that_hits_read_stays_the_same_object() -> None:
    tier = made()
    get = tier.entries.get
    tier.bypass()
    tier.resume()
    tier.clear()
    assert put(tier, KEY)
    assert get(KEY) is tier.entries[KEY]


def test_a_decoded_value_counts_towards_its_entry_s_size() -> None:
    assert entry(value="v" * 10_000).size_bytes() > entry().size_bytes() + 10_000


def test_decoded_rows_are_kept_for_copying_unless_they_are_too_large() -> None:
    row = {"name": "x" * 100}
    few, many = ([dict(row) for _ in range(count)] for count in (10, MAX_COPIED_BYTES // 100))
    kept = [local_entry(encode_payload(rows), header(), 0, rows, Any) for rows in (few, many)]
    assert [one.value for one in kept] == [few, NOT_KEPT]


PAYLOADS = {
    "nothing": encode_payload(None),
    "not kept decoded": encode_payload([[number] for number in range(100)]),
    "text": encode_payload("x" * 1_024),
    "rows": encode_payload([{"id": 10**6 + n, "name": f"Person {n}", "city": "Örebro", "at": n / 7} for n in range(9)]),
    "smallest rows": encode_payload([{"a": number} for number in range(50)]),
    "numbers": encode_payload([number / 7 for number in range(100)]),
}


@pytest.mark.parametrize("content", PAYLOADS.values(), ids=PAYLOADS)
def test_the_estimated_memory_is_close_to_the_memory_in_use(content: bytes) -> None:
    count, tier = 1_000, made(entries=1_000)
    samples = tuple(number / 7 for number in range(8))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            key = make_key("cache", "friends_of", {"person_id": [number]}, 1)
            full = header(10**15 + number, delta_samples=samples, bookmarks=("FB:kcwQ" + "x" * 32,))
            raw = encode(full, key.digest, content)
            own = bytes(bytearray(content))
            value = decode_payload(own, Any, "friends_of")
            assert put(tier, key.entry, local_entry(own, decode_header(raw, key.digest), 0, value, Any))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 < tier.held_bytes / (taken - before) < 1.6


def test_concurrent_fills_drops_and_evictions_keep_the_accounting_consistent() -> None:
    tier = LocalTier(max_entries=20, max_bytes=15 * ONE_ENTRY_BYTES, max_age_seconds=60.0)
    tier.resume()
    failures: list[BaseException] = []
    together = threading.Barrier(5)

    def work(number: int) -> None:
        try:
            together.wait(MAX_WAIT_SECONDS)
            for turn in range(3_000):
                key = f"k{(turn * 7 + number) % 40}"
                if number == 0:
                    (tier.drop_all, tier.drop_all, tier.drop_all, lambda _: tier.clear())[turn % 4]([key, "none"])
                    continue
                found = tier.entries.get(key)
                if found is not None:
                    found.used = True
                elif (fill := tier.begin(key)) is not None:
                    (tier.abandon(fill) if turn % 5 == 0 else tier.fill(fill, entry(size=100 + number * 50)))
        except BaseException as error:  # noqa: BLE001 - it is the test's to show
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(MAX_WAIT_SECONDS)
    assert failures == []
    assert tier.held_bytes == sum(kept.held_bytes for kept in tier.entries.values()) <= 15 * ONE_ENTRY_BYTES
    assert len(tier.entries) <= 20
    assert nothing_is_under_way(tier)
