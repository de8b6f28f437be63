"""Reads that require more than any entry: max_age, fresh, min_generation, min_bookmarks."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from api_client import Entry, EntryState, RefreshFailed, WaitTimeout
from api_client.protocol import lease
from api_client.protocol.lease import BookmarkFault
from tests.integration.reader.conftest import NewKey
from tests.support.any_reader import AnyReader
from tests.support.fake_worker import NONCE
from tests.support.internals import record_claims
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture
def waits_for(reader: AnyReader, pool: ThreadPoolExecutor) -> Any:
    """Begin a read with options."""

    def begin(**options: Any) -> Future[Entry[Any]]:
        return pool.submit(reader.get_entry, "q", {}, **options)

    return begin


def test_an_entry_older_than_max_age_makes_its_caller_wait_and_is_served_to_others(
    reader: AnyReader, new_key: NewKey, waits_for: Any
) -> None:
    key = new_key()
    old = key.store_value("old", age_seconds=60)
    read = waits_for(max_age="10s")
    token = key.begin()
    assert reader.get_entry("q", {}).token == old  # meanwhile
    key.end(token, "new")
    assert (read.result(MAX_WAIT_SECONDS).value, read.result().state) == ("new", EntryState.MISS)


def test_a_load_that_began_after_the_call_satisfies_any_max_age(new_key: NewKey, waits_for: Any) -> None:
    key = new_key()
    read = waits_for(max_age=0)
    token = key.load("v")
    assert read.result(MAX_WAIT_SECONDS).token == token
    # A minute before the next call: a reader knows the time to half of a round trip, which may be long here.
    key.store_value("v", age_seconds=60)
    again = waits_for(max_age=0)
    assert key.load("newer") > token
    assert again.result(MAX_WAIT_SECONDS).value == "newer"


@pytest.mark.promise("Reading", "`fresh`: a load that began before the call does not count")
def test_fresh_does_not_accept_a_load_that_began_before_the_call(new_key: NewKey, waits_for: Any) -> None:
    key = new_key()
    key.claim("of an earlier reader")
    running = key.begin()  # and its read of the graph may be done already
    read = waits_for(fresh=True)
    # The caller's claim is refused, but stamped: the stamp is the record's newest number.
    eventually(lambda: int(key.record()["number"]) > running, "it has claimed")
    key.end(running, "from before")
    token = key.load("from after")  # so it claims anew
    entry = read.result(MAX_WAIT_SECONDS)
    assert (entry.value, entry.token) == ("from after", token)


def test_two_callers_of_a_fresh_value_may_share_the_load_that_began_after_both(
    new_key: NewKey, waits_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, claimed = new_key(), record_claims(monkeypatch)
    key.store_value("old")
    first, second = waits_for(fresh=True), waits_for(fresh=True)
    # The record alone does not show it: the first claims again after a second.
    eventually(lambda: len(claimed) == 2, "both have claimed")
    token = key.load("new")
    assert {first.result(MAX_WAIT_SECONDS).token, second.result(MAX_WAIT_SECONDS).token} == {token}


@pytest.mark.promise("Reading", "`min_generation`: the value was read after that invalidation")
def test_min_generation_accepts_only_values_loaded_after_that_invalidation(
    reader: AnyReader, new_key: NewKey, waits_for: Any
) -> None:
    key = new_key()
    key.store_value("old")
    generation = reader.invalidate("q", {}).generation
    assert reader.get("q", {}) == "old"
    read = waits_for(min_generation=generation)
    token = key.load("new")
    assert read.result(MAX_WAIT_SECONDS).value == "new"
    assert token > generation
    assert reader.get_entry("q", {}, min_generation=generation).state is EntryState.FRESH
    with pytest.raises(WaitTimeout):
        reader.get("q", {}, min_generation=token, timeout=0)


def test_min_bookmarks_accepts_only_values_loaded_with_those_bookmarks(
    reader: AnyReader, new_key: NewKey, waits_for: Any
) -> None:
    key = new_key()
    key.store_value("old", bookmarks=("a",))
    assert reader.get("q", {}, min_bookmarks=["a"]) == "old"
    read = waits_for(min_bookmarks=["a", "b"])
    key.wait_for_claim()
    assert key.record()["claim_bookmarks"].split(b"\n") == [b"a", b"b"]
    key.load("new", bookmarks=("a", "b"))
    assert read.result(MAX_WAIT_SECONDS).value == "new"
    assert reader.get_entry("q", {}, min_bookmarks=("b", "a")).state is EntryState.FRESH


def test_bookmarks_of_a_refused_claim_are_passed_to_the_next_load(new_key: NewKey, waits_for: Any) -> None:
    key = new_key()
    key.claim("of an earlier reader")
    running = key.begin()
    drawn = int(key.record()["number"])
    read = waits_for(min_bookmarks=["b"])
    eventually(lambda: int(key.record()["number"]) > drawn, "its claim was refused")
    assert key.acquire(NONCE).bookmarks == ()  # the same run again
    key.end(running, "without")
    reply = key.acquire(NONCE, number=key.wait_for_claim())
    assert reply.bookmarks == ("b",)
    key.end(reply.token, "with", bookmarks=reply.bookmarks)
    assert read.result(MAX_WAIT_SECONDS).value == "with"


@pytest.mark.parametrize("fault", [BookmarkFault.NOT_REACHED, BookmarkFault.REFUSED])
def test_a_reader_s_bad_bookmark_fails_its_own_read_and_no_other(
    reader: AnyReader, new_key: NewKey, waits_for: Any, fault: BookmarkFault
) -> None:
    key = new_key()
    for _ in range(2):  # however often it comes again
        bad = waits_for(min_bookmarks=["bad"])
        run = key.acquire(NONCE, number=key.wait_for_claim())
        assert run.bookmarks == ("bad",)
        failing = lease.fail(
            key.key, token=run.token, nonce=NONCE, cooling_seconds=30, kind="bookmark", attempts=1,
            retention_seconds=60, bookmarks=fault,
        )  # fmt: skip
        key.store.run(failing)
        error = bad.exception(MAX_WAIT_SECONDS)
        assert isinstance(error, RefreshFailed)
        assert error.kind == "bookmark"
        plain = waits_for()
        key.load("value")
        assert plain.result(MAX_WAIT_SECONDS).value == "value"
        assert reader.get("q", {}) == "value"
        reader.invalidate("q", {}, hard=True)


def test_a_stricter_read_does_not_share_a_weaker_read_s_wait(
    reader: AnyReader, new_key: NewKey, waits_for: Any
) -> None:
    key = new_key()
    plain = waits_for()
    running = key.begin()
    generation = reader.invalidate("q", {}).generation
    more = waits_for(min_generation=generation)
    key.end(running, "from before")
    assert plain.result(MAX_WAIT_SECONDS).value == "from before"
    key.load("from after")
    assert more.result(MAX_WAIT_SECONDS).value == "from after"
