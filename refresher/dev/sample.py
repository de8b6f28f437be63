"""Sample data: eight people, and who knows whom."""

from __future__ import annotations

from typing import Final

from refresher.graph.driver import open_driver
from refresher.settings import WorkerSettings

PEOPLE: Final = {
    1: "Ada", 2: "Grace", 3: "Alan", 4: "Edsger", 5: "Barbara", 6: "Donald", 7: "Katherine", 42: "Margaret",
}  # fmt: skip
KNOWS: Final = ((42, 1), (42, 2), (1, 3), (2, 5), (3, 6), (4, 5), (5, 7), (6, 1))
ABOUT: Final = f"{len(PEOPLE)} (:Person {{id, name}}), [:KNOWS]; id 42 knows Ada and Grace"
_RETRY_SECONDS: Final = 10.0


def load_sample(settings: WorkerSettings) -> None:
    """Create the people in an empty graph."""
    with (
        open_driver(settings, retry_seconds=_RETRY_SECONDS) as driver,
        driver.session(database=settings.neo4j_database or None) as session,
    ):
        people = [{"id": number, "name": name} for number, name in PEOPLE.items()]
        session.run("UNWIND $rows AS row CREATE (:Person {id: row.id, name: row.name})", rows=people).consume()
        session.run(
            "UNWIND $rows AS row MATCH (a:Person {id: row[0]}) MATCH (b:Person {id: row[1]}) CREATE (a)-[:KNOWS]->(b)",
            rows=[list(pair) for pair in KNOWS],
        ).consume()
