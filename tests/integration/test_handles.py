"""Typed handles on a real cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from api_client import CachedQuery, DecodeError, EntryState, RefreshState, cached_query
from refresher.testing import InlineCache


@dataclass
class Friend:
    name: str


friends_of = CachedQuery("friends_of", returns=list[Friend], version=2)
friend = CachedQuery("friend", returns=Friend | None)


@cached_query("friends_of", version=2)
def some_friends(person_id: int) -> list[Friend]:
    raise NotImplementedError


@pytest.fixture
def cache() -> Iterator[InlineCache]:
    with InlineCache() as inline:
        inline.answer("friends_of", lambda person_id: [{"name": f"friend {person_id}"}], version=2, ttl="5m")
        yield inline


def test_a_read_gives_the_type_and_both_kinds_of_handle_read_one_entry(cache: InlineCache) -> None:
    assert friends_of(person_id=42) == [Friend("friend 42")]
    assert some_friends(42) == [Friend("friend 42")]
    assert len(cache.outcomes) == 1
    entry = friends_of.get_entry({"person_id": 42})
    assert (entry.value, entry.state) == ([Friend("friend 42")], EntryState.FRESH)


def test_none_is_a_value(cache: InlineCache) -> None:
    cache.answer("friend", lambda person_id: {"name": "Ada"} if person_id else None)
    assert friend(person_id=0) is None
    assert friend(person_id=1) == Friend("Ada")


def test_a_value_of_another_shape_is_an_error_that_names_the_field(cache: InlineCache) -> None:
    cache.answer("friends_of", lambda person_id: [{"name": 3}], version=2)
    with pytest.raises(DecodeError, match=r"'friends_of' does not fit .*\$\[0\]\.name"):
        friends_of(person_id=1)


def test_everything_else_works_on_the_handles_version(cache: InlineCache) -> None:
    first = friends_of.get_entry({"person_id": 42})
    assert friends_of.key({"person_id": 42}) == cache.client.key("friends_of", {"person_id": 42}, version=2)
    told = friends_of.invalidate({"person_id": 42})
    assert friends_of.get_entry({"person_id": 42}).state is EntryState.STALE
    second = friends_of.get_entry({"person_id": 42})
    assert second.token > told.generation > first.token
    assert friends_of.refresh({"person_id": 42}, wait=True) is RefreshState.TRIGGERED
    assert friends_of.get_entry({"person_id": 42}).token > second.token


def test_the_options_of_the_handle_hold_for_its_reads(cache: InlineCache) -> None:
    recent = CachedQuery("friends_of", returns=list[Friend], version=2, max_age="1m")
    friends_of(person_id=42)
    cache.advance("2m")
    friends_of(person_id=42)
    assert len(cache.outcomes) == 1
    recent(person_id=42)
    assert len(cache.outcomes) == 2
