"""Ctrl-C of the commands that run servers: raised again where Python drops its exception."""

from __future__ import annotations

import signal
import sys
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from refresher.embedded import (
    GuardedProcess,
    Interrupts,
    RedisServer,
    ServerDidNotStart,
    directories,
    redis_server,
    server,
)
from tests.support.opcode_interrupts import interrupted_at_each_opcode


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler, "it is restored"


def test_ctrl_c_interrupts_at_once() -> None:
    with Interrupts.handled(signal.SIGINT) as interrupts:
        interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_python_drops_is_raised_at_the_next_check() -> None:
    class Import:
        """As a lock of the import system, which is forgotten by a weak reference's callback."""

    lock = Import()
    reference = weakref.ref(lock, lambda _: signal.raise_signal(signal.SIGINT))
    with Interrupts.handled(signal.SIGINT) as interrupts:
        del lock
        assert reference() is None, "and nothing was interrupted here"
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_ctrl_c_is_ignored_while_servers_are_being_stopped() -> None:
    with Interrupts.handled(signal.SIGINT) as interrupts:
        interrupts.ignore()
        signal.raise_signal(signal.SIGINT)
        interrupts.check()


def test_a_signal_that_was_ignored_before_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts.handled(signal.SIGINT):
        signal.raise_signal(signal.SIGINT)
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is signal.SIG_IGN


def test_a_start_that_is_interrupted_anywhere_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its program runs; from then on a guardian removes the directory."""

    def run_program(*_: object, **__: object) -> NoReturn:
        sys.settrace(None)
        raise ServerDidNotStart("Redis", "it is not to run here")

    def start() -> None:
        with pytest.raises(ServerDidNotStart):
            RedisServer.start(binary="/bin/true")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(GuardedProcess, "start", run_program)
    for number in interrupted_at_each_opcode(start, directories, redis_server, server):
        assert not list(tmp_path.iterdir()), f"after an interrupt at instruction {number}"
