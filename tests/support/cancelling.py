"""Cancellation of a task at a chosen one of the points where it awaits something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from enum import StrEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CancelPoint(StrEnum):
    """The moment of the cancellation at such a point."""

    BEFORE = "before"
    """The code before the await is running."""
    DURING = "during"
    """The task is awaiting."""
    AFTER = "after"
    """The awaited result is there, and the task has not been resumed yet."""


class CancelledAt(Generic[T]):
    """Awaits something, and cancels the running task at the await of a given number, from 0.

    Attributes:
        has_cancelled: whether that await was reached; else all completed before it.
    """

    def __init__(self, awaited: Awaitable[T], number: int, moment: CancelPoint) -> None:
        self._awaited, self._number, self._moment = awaited, number, moment
        self.has_cancelled: bool = False

    async def run(self) -> T:
        """Await it: the body of a task."""
        return await self

    def __await__(self) -> Generator[Any, Any, T]:
        task, number, error = asyncio.current_task(), 0, None
        assert task is not None
        steps = self._awaited.__await__()
        while True:
            is_it = number == self._number
            if is_it and self._moment is CancelPoint.BEFORE:
                self.has_cancelled = True
                task.cancel()
            try:
                future = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            if is_it:
                self._cancel(task, future)
            number, error = number + 1, None
            try:
                yield future
            except BaseException as thrown:  # noqa: BLE001 - whatever it is: it is for what is awaited
                error = thrown

    def _cancel(self, task: asyncio.Task[Any], future: asyncio.Future[Any] | None) -> None:
        self.has_cancelled = True
        if self._moment is CancelPoint.AFTER and future is not None:
            future.add_done_callback(lambda _: task.cancel())  # before the task's own one
        elif self._moment is not CancelPoint.BEFORE:
            asyncio.get_running_loop().call_soon(task.cancel)
