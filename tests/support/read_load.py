"""Readers that read without a pause while a test disturbs the servers, and their answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from tests.support.any_reader import Answer, AnyReader, answer_of
from tests.support.waiting import eventually

PAUSE_SECONDS = 0.001  # an open breaker answers at once: limit the number of answers
STREAK = 100


class ReadLoad:
    """Threads that read keys in turn until the block ends.

    Args:
        readers: each has a thread of its own; of an async one each call is a task.
        calls: the reads: (query, params).

    Attributes:
        answers: (time, answer), by time.
    """

    def __init__(self, readers: Sequence[AnyReader], calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._calls = calls
        self._ended = threading.Event()
        self._answers: list[list[tuple[float, Answer]]] = [[] for _ in readers]
        self._threads = [
            threading.Thread(target=self._read, args=(reader, answers))
            for reader, answers in zip(readers, self._answers, strict=True)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.reads_well("before anything is done")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def reads_well(self, what: str) -> None:
        """Wait until each thread has a hundred consecutive answers without an error, from now on."""
        begins = [len(answers) for answers in self._answers]

        def streaks() -> bool:
            return all(
                len(answers) - begin > STREAK and not any(answer.error for _, answer in answers[-STREAK:])
                for begin, answers in zip(begins, self._answers, strict=True)
            )

        eventually(streaks, f"reads go well {what}")

    @property
    def answers(self) -> list[tuple[float, Answer]]:
        """Return all answers, by time."""
        return sorted((one for answers in self._answers for one in answers), key=lambda one: one[0])

    def errors(self, of: Callable[[Answer], object] = lambda answer: answer.error) -> list[tuple[float, Answer]]:
        """Return the answers that were errors, or that ``of`` selects."""
        return [(at, answer) for at, answer in self.answers if of(answer)]

    def _read(self, reader: AnyReader, answers: list[tuple[float, Answer]]) -> None:
        number = 0
        while not self._ended.is_set():
            query, params = self._calls[number % len(self._calls)]
            number += 1
            answer = answer_of(reader.get, query, params)
            answers.append((time.monotonic(), answer))
            if answer.error is not None:
                self._ended.wait(PAUSE_SECONDS)
