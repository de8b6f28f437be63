"""Event loops: Ctrl-C that a library swallows, and coroutines for both threads and event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")


def raise_if_cancelled() -> None:
    """Raise CancelledError if the running task was cancelled, even if somebody caught that; not for cleaning up.

    Ctrl-C cancels the main task. Before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes when the
    awaited task is done; redis.asyncio, and caches built on it, send every command within it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def await_if_needed(result: Any) -> Any:
    """Await a result if it is awaitable, which a sync client's is not."""
    return await result if isawaitable(result) else result


async def pause(seconds: float, *, on_loop: bool) -> None:
    """Pause the running task or the thread."""
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
