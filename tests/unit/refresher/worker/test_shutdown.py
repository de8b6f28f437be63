"""Shutdown of a worker: its processes notice it, and one in which a load hangs ends in time."""

from __future__ import annotations

import os
import threading

import pytest

from refresher.worker import shutdown
from refresher.worker.shutdown import ShutdownFlag, end_process
from tests.support.processes import run_forked


def test_a_shutdown_is_known_to_processes_that_were_forked_before_it() -> None:
    flag = ShutdownFlag()
    assert not flag.is_set()
    run_forked(flag.set)
    assert flag.is_set()


@pytest.mark.parametrize("is_stuck", [True, False])
def test_a_process_ends_with_code_1_once_runs_are_handed_back_or_that_takes_too_long(
    monkeypatch: pytest.MonkeyPatch, *, is_stuck: bool
) -> None:
    monkeypatch.setattr(shutdown, "HAND_BACK_SECONDS", 0.1 if is_stuck else 600.0)
    read, write = os.pipe()

    def hand_back() -> None:
        os.write(write, b"handed back")
        if is_stuck:
            threading.Event().wait()

    if not (pid := os.fork()):
        end_process(hand_back, 45.0)
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert is_stuck or os.read(read, 100) == b"handed back"
    os.close(read)
