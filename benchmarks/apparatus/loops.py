"""Event loops: Ctrl-C that a library keeps to itself, and coroutines for threads and event loops alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")


def raise_if_cancelled() -> None:
    """Raise CancelledError if the running task has been cancelled, whoever has caught that; not for cleaning up.

    Ctrl-C is the cancellation of the main task. Before Python 3.12 `asyncio.wait_for` returns instead of passing one on
    that comes when what it waits for is done; redis.asyncio, and caches built on it, send every command within it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def await_if_needed(result: Any) -> Any:
    """Wait where there is something to wait for: what a sync client returns is there already."""
    return await result if isawaitable(result) else result


async def pause(seconds: float, *, on_loop: bool) -> None:
    """Pause the running task, or the thread."""
    if on_loop:
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop here


def run_on_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine without an event loop, and return its result; nothing that it awaits may suspend it."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine on a thread waited for an event loop")
