"""Flask, in processes that gunicorn forks.

::

    gunicorn --preload --workers 2 flask_app:app
"""

from __future__ import annotations

from flask import Flask, Response, jsonify, request
from friends import friends_of

from api_client import CacheError
from api_client.http import cache_headers, is_not_modified

app = Flask(__name__)


@app.get("/people/<int:person_id>/friends")
def friends(person_id: int) -> Response:
    """Return the cached value, at once while there is one within its grace; 304 to a client that has it."""
    entry = friends_of.of(person_id=person_id).get_entry()
    is_known = is_not_modified(entry, request.headers.get("If-None-Match"))
    response = Response(status=304) if is_known else jsonify(entry.value)
    response.headers.update(cache_headers(entry))
    return response


@app.post("/people/<int:person_id>/friends/changed")
def changed(person_id: int) -> tuple[str, int]:
    """Invalidate after a write to the graph: the value is stale from now on, and the next read refreshes it."""
    friends_of.of(person_id=person_id).invalidate()
    return "", 204


@app.errorhandler(CacheError)
def no_value(error: CacheError) -> tuple[dict[str, str], int]:
    """Handle a missing value: the load failed, took too long, or the cache is down."""
    app.logger.warning("%s", error)
    return {"error": "not available now"}, 503
