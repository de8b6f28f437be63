"""All Cypher of the project and its examples, as the newest Neo4j understands it: nothing of it is deprecated."""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from neo4j import (
    GqlStatusObject,
    GraphDatabase,
    NotificationClassification,
    NotificationDisabledClassification,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refresher.embedded.neo4j_server import Neo4jServer

ROOT: Final = Path(__file__).parents[2]
BEGINS: Final = re.compile(r"\s*(MATCH|UNWIND|CREATE|MERGE|CALL(?!\s+(?:apoc|db\.cdc)\.)|RETURN)\s")
"""Without procedures of a plugin, and of other editions: the server has neither."""
IN_PAGES: Final = re.compile(r"[\"'](MATCH [^\"'\n]+ (?:RETURN|SET|DELETE) [^\"'\n]+)[\"']")
# What says that a graph is empty is meant.
MEANT: Final = [NotificationDisabledClassification.UNRECOGNIZED]


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each text of a module, with an empty list in place of what an f-string inserts."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "[]" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        else:
            yield from texts(node)


def own_cypher() -> Iterator[tuple[str, str]]:
    """Yield where each query is, and its text."""
    for path in chain(*(sorted((ROOT / folder).rglob("*.py")) for folder in ("refresher", "benchmarks", "docs"))):
        for line, text in texts(ast.parse(path.read_text(encoding="utf-8"))):
            if BEGINS.match(text):
                yield f"{path.relative_to(ROOT)}:{line}", text
    for path in chain([ROOT / "README.md"], sorted((ROOT / "docs").rglob("*.md"))):
        for found in IN_PAGES.finditer(path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT).as_posix(), found[1]


def is_deprecation(status: GqlStatusObject) -> bool:
    """Return whether a query's status says that a part of it is deprecated."""
    return status.classification is NotificationClassification.DEPRECATION


@pytest.mark.parametrize("language", ["CYPHER 5", "CYPHER 25"])
def test_no_own_cypher_is_deprecated(neo4j_server: Neo4jServer, language: str) -> None:
    auth = (neo4j_server.user, neo4j_server.password)
    noticed, queries = [], list(own_cypher())
    with (
        GraphDatabase.driver(neo4j_server.bolt_uri, auth=auth, notifications_disabled_classifications=MEANT) as driver,
        driver.session(database=neo4j_server.database) as session,
    ):
        for place, cypher in queries:
            statuses = session.run(f"{language} EXPLAIN {cypher}").consume().gql_status_objects
            noticed += [(place, each.status_description) for each in statuses if is_deprecation(each)]
    assert len(queries) > 30
    assert noticed == []


def test_a_deprecation_would_be_noticed(neo4j_server: Neo4jServer) -> None:
    with (
        GraphDatabase.driver(neo4j_server.bolt_uri, auth=(neo4j_server.user, neo4j_server.password)) as driver,
        driver.session(database=neo4j_server.database) as session,
    ):
        statuses = session.run("CYPHER 5 EXPLAIN MATCH (n) RETURN id(n)").consume().gql_status_objects
    assert any(map(is_deprecation, statuses))
