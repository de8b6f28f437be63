"""A gunicorn configuration: the master itself reads, and triggers a refresh, before and while it forks.

So its publisher, its notifications and its in-process tier are up, with their threads and connections, at each fork.
"""

from __future__ import annotations

from typing import Any


def when_ready(server: Any) -> None:
    """Use the cache in the master; the application has been loaded by then."""
    from friends import friends_of

    friends_of(person_id=42)
    friends_of.invalidate({"person_id": 42})
    friends_of(person_id=42)
