"""Values of a graph's own types, as both graphs and the driver really give them, read as Python's types."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

import neo4j
import pytest

from refresher.errors import LoadFailed
from refresher.graph import values
from refresher.graph.call import call_loader
from refresher.queries import Registry, query
from refresher.results import Result
from tests.support.graph_session import graph_session
from tests.support.payloads import read_payload

ROUNDED_US = 123457
AT = {"srid": 7203, "coordinates": [1.5, 2.5]}
PLUS_2, MINUS = timezone(timedelta(hours=2)), timezone(-timedelta(hours=3, minutes=30))


@pytest.fixture(scope="module", params=["arcadedb", "neo4j_server"])
def session(request: pytest.FixtureRequest) -> Iterator[neo4j.Session]:
    with graph_session(request.getfixturevalue(request.param)) as opened:
        yield opened


def read(value: object, type_: Any = Any) -> Any:
    encoded = values.encode(value, query="q", max_bytes=100_000).content
    return read_payload(encoded, type_, query="q", max_bytes=100_000)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("date('2026-07-21')", date(2026, 7, 21)),
        ("localtime('09:27:01')", time(9, 27, 1)),
        ("time('09:27:01-03:30')", time(9, 27, 1, tzinfo=MINUS)),
        ("localdatetime('2026-07-21T09:27:01.123456')", datetime(2026, 7, 21, 9, 27, 1, 123456)),
        ("datetime('2026-07-21T09:27:01+02:00')", datetime(2026, 7, 21, 9, 27, 1, tzinfo=PLUS_2)),
        ("datetime('2026-07-21T09:27:01[Europe/Berlin]')", datetime(2026, 7, 21, 9, 27, 1, tzinfo=PLUS_2)),
        ("datetime('2026-07-21T09:27:01.123456789+02:00')", datetime(2026, 7, 21, 9, 27, 1, ROUNDED_US, tzinfo=PLUS_2)),
        ("datetime('2026-07-21T09:27:01.123456789+02:00')", "2026-07-21T09:27:01.123456789+02:00"),
        ("datetime('2026-07-21T09:27:01[Europe/Berlin]').timezone", "Europe/Berlin"),
        ("duration('P14DT4.5S')", timedelta(days=14, seconds=4.5)),
        ("duration({days: -2, seconds: -3})", timedelta(days=-2, seconds=-3)),
        ("duration('P14M3DT4S')", "P1Y2M3DT4S"),
        ("duration('-P2DT3S') = duration({days: -2, seconds: -3})", True),
        ("point({x: 1.5, y: 2.5})", {"srid": 7203, "coordinates": [1.5, 2.5]}),
        ("point({x: 1.5, y: 2.5, z: 3.5})", {"srid": 9157, "coordinates": [1.5, 2.5, 3.5]}),
        ("point({longitude: 4.9, latitude: 52.4})", {"srid": 4326, "coordinates": [4.9, 52.4]}),
        ("point({longitude: 4.9, latitude: 52.4, height: 3.5})", {"srid": 4979, "coordinates": [4.9, 52.4, 3.5]}),
    ],
)
def test_a_value_of_the_graph_is_read_as_its_python_type(
    session: neo4j.Session, expression: str, expected: object
) -> None:
    record = session.run(f"RETURN {expression} AS value").single(strict=True)  # type: ignore[arg-type]
    decoded = read(record, dict[str, type(expected)])["value"]  # type: ignore[misc]
    assert decoded == expected
    if isinstance(expected, datetime | time):
        assert decoded.utcoffset() == expected.utcoffset()


def test_a_node_a_relationship_and_a_path_have_the_documented_shape(session: neo4j.Session) -> None:
    session.run(
        "CREATE (:Shaped {name: 'a', at: point({x: 1.5, y: 2.5})})-[:LEADS {since: date('2020-01-02')}]->"
        "(:Shaped {name: 'b', at: point({x: 1.5, y: 2.5})})"
    ).consume()
    try:
        record = session.run("MATCH way = (a:Shaped)-[link:LEADS]->(b:Shaped) RETURN a, b, link, way").single(
            strict=True
        )
        shown = read(record)
    finally:
        session.run("MATCH (n:Shaped) DETACH DELETE n").consume()
    a, b, link = shown["a"], shown["b"], shown["link"]
    assert (a, b) == tuple(
        {"id": record[name].element_id, "labels": ["Shaped"], "properties": {"name": name, "at": AT}}
        for name in ("a", "b")
    )
    assert link == {
        "id": record["link"].element_id, "type": "LEADS", "start": a["id"], "end": b["id"],
        "properties": {"since": "2020-01-02"},
    }  # fmt: skip
    assert shown["way"] == {"nodes": [a, b], "relationships": [link]}


@pytest.mark.parametrize("batch", [None, 2])
def test_a_result_that_a_loader_has_not_read_is_its_rows(session: neo4j.Session, batch: int | None) -> None:
    def rows_of_one(tx: Any) -> Any:
        return tx.run("UNWIND range(1, 3) AS n RETURN n, {deep: date('2026-07-21')} AS more")

    def rows_of_each(tx: Any, calls: list[Any]) -> Any:
        return [Result(rows_of_one(tx)), None]

    queries = Registry()
    query("rows", ttl=60, grace=60, batch=batch, into=queries)(rows_of_each if batch else rows_of_one)
    with session.begin_transaction() as tx:
        found = call_loader(queries.find("rows", 1), tx, [{}] * (batch or 1), [None] * (batch or 1), 10_000)
    value = found[0].value if batch else found[0]
    assert read(value) == [{"n": n, "more": {"deep": "2026-07-21"}} for n in (1, 2, 3)]


def test_a_result_with_more_rows_than_a_payload_may_hold_is_refused_before_it_is_read_to_its_end(
    session: neo4j.Session,
) -> None:
    queries = Registry()
    query("rows", ttl=60, grace=60, into=queries)(lambda tx: tx.run("UNWIND range(1, 1000000) AS n RETURN n"))
    with session.begin_transaction() as tx, pytest.raises(LoadFailed) as caught:
        call_loader(queries.find("rows", 1), tx, [{}], [None], 10_000)
    assert caught.value.kind == "too_large"
