from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.turns import turn
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """A room of this test's own."""
    made = {"room": tmp_path / "room", "turnstile": tmp_path / "turnstile"}
    for path in made.values():
        path.touch()
    return made


class Visitor:
    """A thread that takes a turn, and holds it until it is told to end."""

    def __init__(self, *, alone: bool, files: dict[str, Any]) -> None:
        self.is_in, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._visit, args=(alone, files))
        self._thread.start()

    def _visit(self, alone: bool, files: dict[str, Any]) -> None:
        with turn(alone=alone, **files):
            self.is_in.set()
            self._leave.wait(MAX_WAIT_SECONDS)

    def leaves(self) -> None:
        self._leave.set()
        self._thread.join(MAX_WAIT_SECONDS)
        assert not self._thread.is_alive()


def test_tests_share_the_room(files: dict[str, Any]) -> None:
    visitors = [Visitor(alone=False, files=files) for _ in range(2)]
    assert all(visitor.is_in.wait(MAX_WAIT_SECONDS) for visitor in visitors)
    for visitor in visitors:
        visitor.leaves()


def test_one_that_is_alone_waits_for_those_within_and_keeps_others_out(files: dict[str, Any]) -> None:
    first = Visitor(alone=False, files=files)
    assert first.is_in.wait(MAX_WAIT_SECONDS)
    alone = Visitor(alone=True, files=files)
    assert not alone.is_in.wait(0.1)
    second = Visitor(alone=False, files=files)
    first.leaves()
    arrived = eventually(lambda: [one for one in (alone, second) if one.is_in.is_set()], "one of them is in")
    assert len(arrived) == 1, "the two are in the room together"
    for visitor in (arrived[0], alone if arrived[0] is second else second):
        assert visitor.is_in.wait(MAX_WAIT_SECONDS)
        visitor.leaves()
