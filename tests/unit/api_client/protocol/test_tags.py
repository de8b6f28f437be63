"""Valid tags, and how an entry stores them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import pytest

from api_client.protocol.entry import FIXED_HEADER_BYTES, UnreadableEntry, decode_header, encode, encode_tags
from api_client.protocol.keys import make_key, tag_index_key, tag_member, tag_pair_of, tag_state_key
from api_client.protocol.lease import Call
from api_client.protocol.tags import MAX_TAG_BYTES, MAX_TAGS, STEP_ENTRIES, TagWalk, check_tags
from api_client.transport.scripts import drive
from tests.support.lease_world import a_header

DIGEST = bytes(range(16))


class Label(StrEnum):
    PERSON = "person"


@pytest.mark.parametrize(
    ("given", "tags"),
    [
        ([], ()),
        (["a", "b", "a"], ("a", "b")),
        (("person:42",), ("person:42",)),
        ((text for text in ("x", "y")), ("x", "y")),
        ({"only": 1}, ("only",)),
        ([Label.PERSON], ("person",)),
        (["e\u0301"], ("\u00e9",)),
        (["ü" * 100], ("ü" * 100,)),
        (["a\nb\x00"], ("a\nb\x00",)),
        ([str(n) for n in range(MAX_TAGS)], tuple(str(n) for n in range(MAX_TAGS))),
    ],
)
def test_tags_become_plain_text_without_duplicates(given: Any, tags: tuple[str, ...]) -> None:
    assert check_tags(given) == tags
    assert all(type(tag) is str for tag in check_tags(tags))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("person:42", "tags of type str"),
        (b"person:42", "tags of type bytes"),
        (None, "tags of type NoneType"),
        (7, "tags of type int"),
        ([7], "a tag of type int"),
        ([None], "a tag of type NoneType"),
        ([b"x"], "a tag of type bytes"),
        ([["x"]], "a tag of type list"),
        ([""], "a tag of 0 bytes"),
        (["x" * (MAX_TAG_BYTES + 1)], "a tag of 201 bytes"),
        (["ü" * 101], "a tag of 202 bytes"),
        (["\ud800"], "no UTF-8 form"),
        ([str(n) for n in range(MAX_TAGS + 1)], "more than 64 tags"),
        (itertools.repeat("x"), "more than 64 tags"),
    ],
)
def test_invalid_tags_raise_an_error_that_says_what_is_allowed(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"{says}.*: expected at most 64 texts of 1 to 200 bytes in UTF-8"):
        check_tags(given)


def test_an_entry_has_its_tags_in_a_field_that_a_read_does_not_decode() -> None:
    tags = ("person:42", "ünï", "a\nb")
    raw = encode(a_header(1, bookmarks=("b",), encoded_tags=encode_tags(tags)), DIGEST, b"payload")
    header = decode_header(raw, DIGEST)
    assert (header.tags, header.bookmarks, raw[header.length :]) == (tags, ("b",), b"payload")
    assert len(encode(a_header(1, encoded_tags=encode_tags(())), DIGEST, b"")) == FIXED_HEADER_BYTES
    assert decode_header(encode(a_header(1), DIGEST, b""), DIGEST).tags == ()
    with pytest.raises(UnreadableEntry):
        _ = a_header(1, encoded_tags=b"\xc1").tags


def test_the_largest_tags_and_the_most_bookmarks_fit_in_a_header() -> None:
    tags = tuple(f"{n:02}".ljust(MAX_TAG_BYTES, "x") for n in range(MAX_TAGS))
    bookmarks = tuple(f"{n:04}".ljust(1_023, "y") for n in range(48))
    samples = (0.5,) * 64
    raw = encode(a_header(1, bookmarks=bookmarks, delta_samples=samples, encoded_tags=encode_tags(tags)), DIGEST, b"")
    assert decode_header(raw, DIGEST).tags == tags


def test_index_and_state_of_a_tag_name_each_other_and_share_a_slot() -> None:
    index, state = tag_index_key("ns", "person:42"), tag_state_key("ns", "person:42")
    assert tag_pair_of(index) == tag_pair_of(state) == (index, state)
    assert index.partition("{")[2] == state.partition("{")[2]
    assert tag_index_key("ns", "person:43") != index


def test_a_tag_invalidation_sends_a_bounded_number_of_entries_per_step() -> None:
    members = [(tag_member(make_key("cache", "query", {"n": n}, 1)), n) for n in range(2 * STEP_ENTRIES + 1)]
    invalidated: list[int] = []

    def answer(calls: Sequence[Call[Any]]) -> list[Any]:
        invalidated.append(sum(call.script == "invalidate" for call in calls))
        return [members if call.script == "tag_page" else 1 for call in calls]

    assert drive(TagWalk("cache", retention_seconds=60).invalidate(["tag"]), answer) == len(members)
    assert [count for count in invalidated if count] == [STEP_ENTRIES, STEP_ENTRIES, 1]
