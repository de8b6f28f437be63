"""Ctrl-C, where a library has kept it to itself.

On an event loop Ctrl-C is the cancellation of the main task. Before Python 3.12, `asyncio.wait_for` returns instead of
passing one on that comes when what it waits for is done; redis.asyncio sends every command within it, and so do the
caches built on it. The task then goes on, and nothing but its count of cancellations knows.
"""

from __future__ import annotations

import asyncio


def raise_if_cancelled() -> None:
    """Raise CancelledError if the running task has been cancelled, whoever has caught that; not for cleaning up."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
