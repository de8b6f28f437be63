"""What `refresher doctor` finds on this host, where the environment names the ports of a worker: what that one says."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from typing import Final

from refresher.findings import Finding, Level
from refresher.health_asked import ask_health, get
from refresher.settings import WorkerSettings

_MARK: Final = b"\nrefresher_ready{"
_DROPPED: Final = re.compile(rb'^refresher_messages_dropped_total\{reason="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)
_LOOK: Final = "look at the worker and its log: not running, stopped, or another process has the port"

_STRANGERS: Final = "something else writes into the queues, or a release that this one does not know: its log says what"


def of_this_host(settings: WorkerSettings) -> Iterator[Finding]:
    """Ask the worker of this host for its health and its metrics; nothing without a port."""
    if settings.health_port:
        yield _health(settings)
    if settings.metrics_port:
        yield _metrics(settings)


def _health(settings: WorkerSettings) -> Finding:
    where = f"CACHE_HEALTH_PORT={settings.health_port}"
    try:
        is_good, record = ask_health(settings.health_address, settings.health_port, "/ready")
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = str(error) or type(error).__name__
        return Finding("worker here", Level.PROBLEM, f"no health at {where}: {why}", _LOOK)
    if is_good:
        return Finding("worker here", Level.OK, "ready")
    wrong = "; ".join(f"{part}: {said}" for part, said in record["checks"].items() if said != "ok")
    return Finding("worker here", Level.PROBLEM, f"not ready, {wrong}", "mend that, or the worker's own environment")


def _metrics(settings: WorkerSettings) -> Finding:
    where = f"CACHE_METRICS_PORT={settings.metrics_port}"
    try:
        _, body = get(settings.metrics_address, settings.metrics_port, "/metrics")
    except (OSError, http.client.HTTPException) as error:
        return Finding("metrics here", Level.WARNING, f"none at {where}: {str(error) or type(error).__name__}", _LOOK)
    if _MARK not in body:
        return Finding("metrics here", Level.WARNING, f"what listens at {where} is no worker", _LOOK)
    dropped = {reason.decode(): int(float(count)) for reason, count in _DROPPED.findall(body)}
    if any(dropped.values()):
        why = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
        return Finding(
            "metrics here", Level.WARNING, f"since it began it has dropped messages unread: {why}", _STRANGERS
        )
    return Finding("metrics here", Level.OK, f"served at {where}")
