"""A gunicorn configuration: the master itself reads and triggers before it forks, and reads when a child has died.

So its publisher, its notifications and its in-process tier are up, with their threads and connections, at each fork.
"""

from __future__ import annotations

from typing import Any


def when_ready(server: Any) -> None:
    """Use the cache in the master; the application has been loaded by then."""
    from friends import friends_of

    friends_of(person_id=42)
    friends_of.of(person_id=42).invalidate()
    friends_of(person_id=42)


def child_exit(server: Any, worker: Any) -> None:
    """Log what the master reads: the children had copies of its connections, and one child has ended."""
    from friends import friends_of

    server.log.info("the master reads %s", friends_of(person_id=42))
