"""A race: who can't run, reads something wrong or raises is left out by name, and the others are measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from benchmarks.contenders.contender import AsyncContender, Contender, Course, SyncContender
from benchmarks.options import Scale
from benchmarks.places import Place
from benchmarks.racing import Race, Rules, run_race

PLACE = Place("redis://nowhere", "redis://nowhere", "redis://nowhere", "none", "7.0.0", "bench")
SCALE = Scale(2, 2, 0.001, 1, 4, 1, 0.1, (1, 1))


class Plain(SyncContender):
    """Reads from nowhere."""

    title = "plain"

    def set_up(self) -> None:
        self.events: list[str] = ["set up"]

    def reader(self) -> Callable[[int], Any]:
        return self.course.value_of

    def close(self) -> None:
        self.events.append("closed")


class Wrong(Plain):
    title = "wrong"

    def reader(self) -> Callable[[int], Any]:
        return lambda number: self.course.value_of(number + 1)


class Late(Plain):
    """Raises once `Last`, which is set up after it, has begun to read."""

    title = "late"

    def reader(self) -> Callable[[int], Any]:
        def read(number: int) -> Any:
            if Last.has_begun:
                raise ConnectionError("gone")
            return self.course.value_of(number)

        return read


class Last(Plain):
    title = "last"
    has_begun = False

    def reader(self) -> Callable[[int], Any]:
        Last.has_begun = True
        return super().reader()


class Deaf(AsyncContender):
    """Is cancelled within its first read, or a later one, and keeps that to itself."""

    title = "deaf"
    is_cancelled_at = 0

    async def set_up(self) -> None:
        self.reads, self.is_closed = 0, False

    def reader(self) -> Callable[[int], Any]:
        async def read(number: int) -> Any:
            if self.reads == self.is_cancelled_at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            self.reads += 1
            return self.course.value_of(number)

        return read

    async def close(self) -> None:
        self.is_closed = True


class Absent(Plain):
    title = "absent"
    needs = ("no_such_module",)


def made(*kinds: type[Contender]) -> list[Any]:
    return [kind(Course(PLACE, range(8), str)) for kind in kinds]


def race(*kinds: type[Contender], threads: int = 1) -> tuple[Race, list[Any]]:
    contenders = made(*kinds)
    return run_race(contenders, Rules(threads, one_key=False, scale=SCALE, seed=1)), contenders


@pytest.mark.parametrize("threads", [1, 3])
def test_whoever_fails_is_left_out_by_name_and_the_rest_is_measured(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Last, "has_begun", False)
    found, _ = race(Plain, Wrong, Late, Absent, Last, threads=threads)
    assert found.left_out == {
        "wrong": "BenchError: it read '1' under number 0, which is wrong",
        "late": "ConnectionError: gone",
        "absent": "not installed: no_such_module",
    }
    assert len(found.seconds_a_read("plain")) == len(found.seconds_a_read("last")) == SCALE.rounds
    assert found.seconds_a_read("late") == found.times_as_fast("plain", "late") == []


def test_everyone_who_was_set_up_is_closed() -> None:
    _, (plain, wrong) = race(Plain, Wrong)
    assert plain.events == wrong.events == ["set up", "closed"]


@pytest.mark.parametrize("is_cancelled_at", [0, 100])
def test_a_race_that_is_interrupted_ends_also_where_a_contender_keeps_that_to_itself(
    is_cancelled_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Deaf, "is_cancelled_at", is_cancelled_at)
    contenders = made(Deaf, Plain)
    with pytest.raises(asyncio.CancelledError):
        run_race(contenders, Rules(1, one_key=False, scale=SCALE, seed=1))
    assert contenders[0].is_closed
