"""Example application: reads through the cache, and serves the metrics of all its processes.

::

    gunicorn --config gunicorn.conf.py application:app

Its environment is ``application.env.example``; its query is that of ``docs/examples/my_queries.py``.
"""

from __future__ import annotations

from typing import Any

from flask import Flask, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from api_client import CacheError, get_cached

# Far below gunicorn's timeout, which kills the whole process, other threads included.
WAIT_SECONDS = 5.0

app = Flask(__name__)


@app.get("/people/<int:person_id>/friends")
def friends(person_id: int) -> list[dict[str, Any]]:
    """Return the cached value, at once while there is one within its grace."""
    return get_cached("friends_of", {"person_id": person_id}, type=list[dict[str, Any]], timeout=WAIT_SECONDS)


@app.get("/metrics")
def metrics() -> Response:
    """Return the metrics of all processes, for Prometheus; block this path at a public proxy."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


@app.get("/live")
def live() -> tuple[str, int]:
    """Report that the process replies. Not that the cache does: no restart would bring it back."""
    return "ok\n", 200


@app.errorhandler(CacheError)
def no_value(error: CacheError) -> tuple[dict[str, str], int]:
    """Handle a missing value: the load failed, took too long, or the cache is down."""
    app.logger.warning("%s", error)
    return {"error": "not available now"}, 503
