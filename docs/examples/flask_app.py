"""Flask, in processes that gunicorn forks.

::

    gunicorn --preload --workers 2 flask_app:app
"""

from __future__ import annotations

from flask import Flask
from friends import Friend, friends_of

from api_client import CacheError

app = Flask(__name__)


@app.get("/people/<int:person_id>/friends")
def friends(person_id: int) -> list[Friend]:
    """Return the cached value, at once while there is one within its grace."""
    return friends_of(person_id=person_id)


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
