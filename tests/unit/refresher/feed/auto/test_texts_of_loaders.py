"""Texts of Cypher in loaders, and queries that have coarse tags only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from api_client.errors import ConfigurationError
from refresher import query
from refresher.feed.auto.dependencies import Dependencies, Dependency, Key
from refresher.feed.auto.texts import TextFound, coarse_queries, texts_of
from refresher.feed.watches import check_watched, watches
from refresher.queries import Registry

OF_MODULE = "MATCH (m:Movie) RETURN m"
NOT_CYPHER = "match"


def plain(tx: Any) -> Any:
    """MATCH this, and RETURN it: no text of its own."""
    return tx.run("MATCH (p:Person {id: $id}) RETURN p", id=NOT_CYPHER)


def of_module(tx: Any) -> Any:
    return tx.run(OF_MODULE)


def in_a_function(tx: Any) -> list[Any]:
    def rows(key: int) -> Any:
        return tx.run("UNWIND $keys AS key MATCH (p:Person {id: key}) RETURN p", keys=[key])

    return [rows(key) for key in (1, 2)]


def in_parts(tx: Any, label: str) -> Any:
    return tx.run(f"MATCH (p:{label}) " + "RETURN p")


@pytest.mark.parametrize(
    ("loader", "texts"),
    [
        (plain, ["MATCH (p:Person {id: $id}) RETURN p"]),
        (of_module, [OF_MODULE]),
        (in_a_function, ["UNWIND $keys AS key MATCH (p:Person {id: key}) RETURN p"]),
        (in_parts, []),
        (len, []),
    ],
)
def test_texts_are_found_in_a_loaders_code(loader: Callable[..., Any], texts: list[str]) -> None:
    assert texts_of(loader) == texts


FINE = Dependency("Person", key_property="id", key=Key("id"))
COARSE = Dependency("KNOWS", is_type=True, why="a path of any length")


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([Dependencies((FINE,))], None),
        ([Dependencies((FINE, COARSE))], None),
        ([Dependencies((COARSE,)), Dependencies((FINE,))], None),
        ([Dependencies((COARSE,)), Dependencies((COARSE,))], "a path of any length"),
        ([Dependencies((COARSE,), ("the procedure x",))], "the procedure x; a path of any length"),
    ],
)
def test_a_query_that_has_coarse_tags_only_is_named_with_its_reasons(
    texts: list[Dependencies], why: str | None
) -> None:
    found = [TextFound("friends_of", str(number), one) for number, one in enumerate(texts)]
    assert coarse_queries(found) == ({} if why is None else {"friends_of": why})


@pytest.fixture
def automatic() -> Registry:
    registry = Registry()
    query("friends_of", ttl=60, grace=60, tags="auto", into=registry)(plain)
    return registry


def test_found_tags_need_something_that_is_watched(automatic: Registry) -> None:
    with pytest.raises(ConfigurationError, match=r"friends_of.*nothing is watched"):
        check_watched(automatic)
    watches.node("Person", key="id")
    check_watched(automatic)


def test_other_queries_need_nothing_that_is_watched() -> None:
    check_watched(Registry())


def test_a_text_that_names_no_way_to_tags_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected 'auto', at most 64 texts"):
        query("friends_of", ttl=60, grace=60, tags="other")  # type: ignore[arg-type]
