"""A graph whose trigger notes changes, for tests of what it notes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import neo4j

from refresher.feed.changes import Changes
from refresher.feed.outbox import Outbox
from refresher.feed.triggers import Triggers


@dataclass(frozen=True, slots=True)
class WatchedGraph:
    """The graph, its trigger, and the trigger's notes."""

    driver: neo4j.Driver
    triggers: Triggers
    outbox: Outbox

    def run(self, *statements: str, **params: Any) -> list[dict[str, Any]]:
        """Run statements in one transaction; returns the last one's rows."""
        with self.driver.session(database="neo4j") as session, session.begin_transaction() as transaction:
            rows: list[dict[str, Any]] = []
            for statement in statements:
                rows = transaction.run(statement, params).data()
            transaction.commit()
        return rows

    def taken(self) -> tuple[set[str], int]:
        """Take all notes, and acknowledge them; returns the tags, and how many transactions there were."""
        changes = self.outbox.take()
        self.outbox.acknowledge(changes)
        return set(changes.tags), len(changes.positions)


def with_id_of(changes: Changes, later: Changes) -> Changes:
    """Return the changes of one note as if the graph had given its id to a later one."""
    ((_, own_id),), ((graphs_id, _),) = changes.positions, later.positions
    return replace(changes, positions=((graphs_id, own_id),))
