"""The session of a load: to read, in the configured database, after the bookmarks that it was given."""

from __future__ import annotations

from typing import Any

import neo4j
import pytest
from neo4j.exceptions import ServiceUnavailable

from refresher.errors import LoadFailed
from refresher.graph import loader
from refresher.graph.loader import Graph
from refresher.queries import Registry, query
from refresher.settings import WorkerSettings


class UnreachableDriver:
    def __init__(self) -> None:
        self.sessions: list[dict[str, Any]] = []

    def session(self, **options: Any) -> neo4j.Session:
        self.sessions.append(options)
        raise ServiceUnavailable

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("database", "name"), [("people", "people"), ("", None)])
def test_a_load_s_session_reads_after_the_bookmarks_in_the_configured_database(
    monkeypatch: pytest.MonkeyPatch, database: str, name: str | None
) -> None:
    driver, registry = UnreachableDriver(), Registry()
    monkeypatch.setattr(loader, "open_driver", lambda *_: driver)
    query("q", ttl=60, grace=30, into=registry)(lambda tx: tx.run("RETURN 1").single()[0])
    (found,) = registry
    with pytest.raises(LoadFailed):
        Graph(WorkerSettings(neo4j_database=database)).load(found, [{}], [None], ["FB:1", "FB:2"], 1.0)
    (options,) = driver.sessions
    assert options["bookmarks"].raw_values == {"FB:1", "FB:2"}
    assert (options["database"], options["default_access_mode"]) == (name, neo4j.READ_ACCESS)
