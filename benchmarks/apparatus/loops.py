"""Event loops: uvloop, Ctrl-C that a library keeps to itself, and calls that may be coroutines."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import Any


def run_on_loop(coroutine: Any, *, uvloop: bool) -> Any:
    """Run a coroutine on an event loop of its own, and return what it does."""
    if not uvloop:
        return asyncio.run(coroutine)
    from uvloop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


def raise_if_cancelled() -> None:
    """Raise CancelledError if the running task has been cancelled, whoever has caught that; not for cleaning up.

    Ctrl-C is the cancellation of the main task. Before Python 3.12 `asyncio.wait_for` returns instead of passing one on
    that comes when what it waits for is done; redis.asyncio, and caches built on it, send every command within it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def await_if_needed(result: Any) -> Any:
    """Wait where there is something to wait for: sync competitors are through already."""
    return await result if isawaitable(result) else result
