"""A race: who can't run, reads something wrong or raises is left out by name, and the others are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from refresher.bench.contenders.contender import Contender, Course, SyncContender
from refresher.bench.options import Scale
from refresher.bench.places import Place
from refresher.bench.racing import Race, Rules, run_race

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


class Absent(Plain):
    title = "absent"
    needs = ("no_such_module",)


def race(*kinds: type[Contender], threads: int = 1) -> tuple[Race, list[Any]]:
    contenders: list[Any] = [kind(Course(PLACE, range(8), str)) for kind in kinds]
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
