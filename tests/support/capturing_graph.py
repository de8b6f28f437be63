"""A graph that captures its changes as Neo4j's documentation says: a list of transactions, which answers the feed.

It stands for Neo4j's driver and `Triggers`: no server here has CDC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import neo4j
from neo4j.exceptions import Neo4jError

from refresher.feed.errors import FeedError
from refresher.feed.triggers import Backlog
from refresher.feed.watches import Watches
from tests.support.driver_values import server_error

# As in "Format of change events" of Neo4j's manual of CDC, and with the keys of its page on key properties.
PERSON: dict[str, Any] = {
    "elementId": "4:b7e35973-0aff-42fa-873b-5de31868cb4a:1",
    "keys": {"Person": [{"firstName": "john", "lastName": "doe"}, {"ssn": "Y654321"}], "Employee": [{"id": 1001}]},
    "eventType": "n",
    "state": {
        "before": None,
        "after": {
            "properties": {"firstName": "john", "lastName": "doe", "ssn": "Y654321", "id": 1001},
            "labels": ["Person", "Employee"],
        },
    },
    "operation": "c",
    "labels": ["Person", "Employee"],
}
ACTED_IN: dict[str, Any] = {
    "elementId": "5:6a4af4ff-da3a-49e7-ae71-2c0ac3c1fc1a:0",
    "start": {
        "elementId": "4:b7e35973-0aff-42fa-873b-5de31868cb4a:1",
        "keys": {"Person": [{"ssn": "Y654321"}]},
        "labels": ["Person"],
    },
    "end": {"elementId": "4:6a4af4ff-da3a-49e7-ae71-2c0ac3c1fc1a:1", "keys": {}, "labels": ["MOVIE"]},
    "eventType": "r",
    "state": {"before": None, "after": {"properties": {"roles": "Jack Swigert"}}},
    "type": "ACTED_IN",
    "operation": "c",
    "keys": [{"registerId": 1125}, {"official": "Alice Roberts"}],
}


class CapturingGraph:
    """A driver, its session and its transaction: transactions by their ids, and one position per event."""

    def __init__(self) -> None:
        self.transactions: dict[int, list[dict[str, Any]]] = {}
        self.mode, self.failing, self.read, self.asked = "FULL", "", 0, [{}]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def session(self, **_: object) -> CapturingGraph:
        return self

    def execute_write(self, work: Any) -> Any:
        return work(self)

    def last_bookmarks(self) -> neo4j.Bookmarks:
        return neo4j.Bookmarks.from_raw_values([f"FB:{self.last}"])

    @property
    def last(self) -> int:
        return max(self.transactions, default=0)

    def commit(self, *events: Any) -> None:
        self.transactions[self.last + 1] = list(events)

    def single(self, **_: object) -> dict[str, str]:
        return {"id": f"{self.last}.end"}

    def run(self, statement: str, **params: Any) -> Any:
        if "db.cdc.query" not in statement:
            return self
        if self.failing:
            raise server_error(self.failing)
        self.asked = params["selectors"]
        return self.rows(int(params["position"].partition(".")[0]))

    def rows(self, after: int) -> Iterator[dict[str, Any]]:
        for number in sorted(number for number in self.transactions if number > after):
            for seq, event in enumerate(self.transactions[number]):
                self.read += 1
                yield {"id": f"{number}.{seq}", "txId": number, "mode": self.mode, "at": 1_000 * number, "event": event}


class CapturingServer:
    """What `Triggers` is for the source: the driver, and single statements."""

    def __init__(self, driver: CapturingGraph, answers: dict[str, Any] | None = None) -> None:
        self.driver, self.database = driver, None
        self.trigger: Any = None
        self.answers: dict[str, Any] = {
            "SHOW PROCEDURES": [{"n": 1}],
            "db.cdc.query": [],
            "db.cdc.current": [{"id": "1"}],
            "SHOW CONSTRAINTS": [],
        }
        self.answers |= answers or {}

    def check(self, _: Watches) -> None: ...

    def backlog(self) -> Backlog:
        return Backlog(0, 0.0)

    def has(self, *_: str) -> bool:
        return bool(self.read("SHOW PROCEDURES")[0]["n"])

    def installed(self) -> Any:
        if isinstance(self.trigger, FeedError):
            raise self.trigger
        return self.trigger

    def read(self, statement: str) -> Any:
        answer = next(answer for words, answer in self.answers.items() if words in statement)
        if isinstance(answer, Neo4jError):
            raise FeedError("refused") from answer
        return answer
