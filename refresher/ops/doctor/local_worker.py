"""Checks of this host's worker: its ports, and the settings, queries and graph of its environment."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from typing import Final

from api_client.errors import ConfigurationError
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Finding, ok, problem, warning
from refresher.ops.http import fetch_health, get
from refresher.ops.startup_checks import graph_problem, misspelled_settings
from refresher.queries import registry
from refresher.query_modules import import_queries

_WORKER_METRIC: Final = b"\nrefresher_ready{"
_DROPPED: Final = re.compile(rb'^refresher_messages_dropped_total\{reason="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)
_LOOK: Final = "see the worker and its log: it is not running, is stopped, or another process has the port"


def settings(_: Deployment) -> Iterator[Finding]:
    """Report variables that nearly match a setting's name; nothing if there are none."""
    for name, meant in misspelled_settings():
        yield warning(f"{name} is not a setting, and has no effect", f"did you mean {meant}?")


def health(deployment: Deployment) -> Iterator[Finding]:
    """Query the health of this host's worker; nothing without a port."""
    settings = deployment.worker
    if not settings.health_port:
        return
    try:
        is_good, record = fetch_health(settings.health_address, settings.health_port, "/ready")
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = str(error) or type(error).__name__
        yield problem(f"no health at CACHE_HEALTH_PORT={settings.health_port}: {why}", _LOOK)
        return
    if is_good:
        yield ok("ready")
    else:
        faults = "; ".join(f"{part}: {fault}" for part, fault in record["checks"].items() if fault != "ok")
        yield problem(f"not ready, {faults}", "fix that, or the worker's own environment")


def metrics(deployment: Deployment) -> Iterator[Finding]:
    """Query the metrics of this host's worker; nothing without a port."""
    settings = deployment.worker
    if not settings.metrics_port:
        return
    where = f"CACHE_METRICS_PORT={settings.metrics_port}"
    try:
        _, body = get(settings.metrics_address, settings.metrics_port, "/metrics")
    except (OSError, http.client.HTTPException) as error:
        yield warning(f"none at {where}: {str(error) or type(error).__name__}", _LOOK)
        return
    if _WORKER_METRIC not in body:
        yield warning(f"what listens at {where} is not a worker", _LOOK)
    elif dropped := [(why.decode(), int(float(count))) for why, count in _DROPPED.findall(body) if float(count)]:
        yield warning(
            f"messages rejected since its start: {', '.join(f'{count} {why}' for why, count in dropped)}",
            "another application, or an incompatible release, writes to the queues: the worker's log says what",
        )
    else:
        yield ok(f"served at {where}")


def queries(deployment: Deployment) -> Finding:
    """Import the modules of REFRESHER_QUERIES."""
    settings = deployment.worker
    try:
        import_queries(settings.query_modules)
    except ConfigurationError as error:
        return problem(str(error), "fix the module: workers do not start either")
    if len(registry):
        return ok(f"{len(registry)} registered")
    return warning(
        f"none registered here: REFRESHER_QUERIES={settings.queries!r}",
        "REFRESHER_QUERIES names the modules that use @query; workers need it, readers don't",
    )


def graph(deployment: Deployment) -> Finding:
    """Run a query as the worker's user in its database."""
    settings = deployment.worker
    if fault := graph_problem(settings):
        return problem(fault, "check NEO4J_URI, NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE, and that it is up")
    database = f"database {settings.neo4j_database!r}" if settings.neo4j_database else "default database"
    return ok(f"the {database} is reachable for the user {settings.neo4j_user!r}")
