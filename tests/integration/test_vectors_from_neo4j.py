"""Vectors of Neo4j, which the newest release alone has, read as lists and as the driver's type."""

from __future__ import annotations

from typing import Any

import pytest
from neo4j.vector import Vector

from refresher.embedded.neo4j_server import Neo4jServer
from refresher.graph import values
from tests.support.graph_session import graph_session
from tests.support.payloads import read_payload


def read(value: object, type_: Any = Any) -> Any:
    encoded = values.encode(value, query="q", max_bytes=100_000).content
    return read_payload(encoded, type_, query="q", max_bytes=100_000)


@pytest.mark.parametrize(
    ("kind", "dtype", "numbers"),
    [
        ("INTEGER8", "i8", [1, -2, 3]), ("INTEGER16", "i16", [1, -2, 3]), ("INTEGER32", "i32", [1, -2, 3]),
        ("INTEGER64", "i64", [1, -2, 3]), ("FLOAT32", "f32", [1.5, -2.5, 0.0]), ("FLOAT64", "f64", [0.1, -2.5, 0.0]),
    ],
)  # fmt: skip
def test_a_vector_of_neo4j_is_read_as_a_list_and_as_a_vector(
    neo4j_server: Neo4jServer, kind: str, dtype: str, numbers: list[float]
) -> None:
    with graph_session(neo4j_server) as session:
        cypher = f"CYPHER 25 RETURN {{v: vector($numbers, 3, {kind})}} AS row"
        row = session.run(cypher, numbers=numbers).single(strict=True)["row"]  # type: ignore[arg-type]
    assert read(row) == {"v": numbers}
    found = read(row, dict[str, Vector])["v"]
    assert (found.dtype.value, found.to_native()) == (dtype, numbers)
