"""Processes of readers: deaf to Ctrl-C themselves, and none is lost that is pressed while they are started."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from benchmarks import processes


def answer(pipe: Any) -> None:
    """Say each time whether one is still there, until the other side is gone."""
    try:
        while True:
            pipe.send(pipe.recv())
    except EOFError:
        return


def test_a_process_of_readers_is_deaf_to_ctrl_c_and_ends_with_its_pipe() -> None:
    child = processes.start_child(answer)
    child.pipe.send("before")
    assert child.pipe.recv() == "before"
    pid = child.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    child.pipe.send("after")
    assert child.pipe.recv() == "after"
    processes.end_children([child])
    assert child.process.exitcode == 0


def test_ctrl_c_while_the_server_of_processes_starts_comes_when_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def start() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        steps.append("started")

    monkeypatch.setattr(processes, "ensure_running", start)
    with pytest.raises(KeyboardInterrupt):
        processes.prepare()
    assert steps == ["started"]
