"""Tags of watched labels and types: what they name, and the many of a label that become one of all its nodes."""

from __future__ import annotations

import pytest

from api_client.protocol.tags import MAX_TAGS, check_tags
from refresher.watched_tags import bulk_tag, coarsened, end_tag, node_tag, watched_name

PERSON = node_tag("Person", "id", "a:b=c@d")


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("Person", "Person"),
        (PERSON, "Person"),
        (node_tag("Person", "id", ""), "Person"),
        (bulk_tag("Person"), "Person"),
        (end_tag("KNOWS", PERSON), "KNOWS"),
    ],
)
def test_every_tag_of_a_label_or_type_names_it(tag: str, name: str) -> None:
    assert watched_name(tag) == name


def test_more_tags_than_an_entry_may_have_become_that_of_all() -> None:
    persons = [*(f"Person:id={n}" for n in range(60)), "Person:*"]
    others = ["KNOWS@Person:id=1", "KNOWS:*", *map(str, range(5))]
    kept = check_tags(coarsened([*persons, *others], MAX_TAGS))
    assert set(kept) == {"Person", "Person:*", *others}


def test_the_tag_of_all_makes_finer_ones_needless() -> None:
    found = coarsened(["Person:id=1", "Person", "Person:*", "KNOWS@Person:id=1", "KNOWS", "KNOWS:*"], MAX_TAGS)
    assert set(found) == {"Person", "Person:*", "KNOWS", "KNOWS:*"}


def test_tags_of_one_s_own_that_begin_like_a_label_stay() -> None:
    own = ["Person:vip", "Person:vip:*", "Person@home", "KNOWS@Person:id"]
    found = coarsened([*own, "Person", "Person:*", "KNOWS", "KNOWS:*"], 2)
    assert set(found) == {*own, "Person", "Person:*", "KNOWS", "KNOWS:*"}
