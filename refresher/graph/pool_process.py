"""The process of a worker's pool, as a load sees it."""

from __future__ import annotations

from billiard.common import terminate_handler_fired
from billiard.process import current_process


def pool_has_limits() -> bool:
    """Return whether this process is one of a prefork pool, which Celery's time limits end."""
    return bool(current_process().name != "MainProcess")


def process_is_ending() -> bool:
    """Return whether this is a process of a prefork pool that is ending by a signal.

    Whatever is raised now, it goes. Its main process gets no result of the task, and counts the process as lost.
    """
    return pool_has_limits() and terminate_handler_fired()
