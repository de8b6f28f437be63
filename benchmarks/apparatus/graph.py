"""Embedded graph of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import neo4j

from refresher.demo.environment import graph_server
from refresher.graph.driver import address_of
from refresher.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class GraphTarget:
    """Address of a graph. ``environ`` is a worker's environment, with the password; ``title`` has no password."""

    environ: Mapping[str, str]
    title: str

    @property
    def database(self) -> str | None:
        return WorkerSettings.from_env(self.environ).neo4j_database or None

    def async_driver(self) -> neo4j.AsyncDriver:
        """Return a driver for asyncio, with as few retries as the worker's driver."""
        settings = WorkerSettings.from_env(self.environ)
        auth = (settings.neo4j_user, settings.neo4j_password) if settings.neo4j_password else None
        uri, tls = address_of(settings)
        return neo4j.AsyncGraphDatabase.driver(uri, auth=auth, max_transaction_retry_time=0, **tls)


@contextmanager
def running_graph() -> Iterator[tuple[neo4j.Driver, GraphTarget]]:
    """Start an embedded graph."""
    environ = dict(os.environ)
    with graph_server(environ) as (driver, title):
        yield driver, GraphTarget(environ, title)
