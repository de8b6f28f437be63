"""An exception before a chosen bytecode instruction of some modules, as a signal handler may raise one there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any, Final

MAX_INSTRUCTIONS: Final = 5_000


class Interrupted(BaseException):
    """Raised by the handler."""


class InterruptedByTimer(Exception):
    """Raised by the handler; `except Exception` catches it."""


class OpcodeInterrupt:
    """Counts the instructions that this thread executes in some modules; raises ``error`` before the ``number``th."""

    def __init__(self, number: int, error: type[BaseException], *modules: ModuleType) -> None:
        self.number: int = number
        self._error = error
        self._files = {module.__file__ for module in modules}
        self.count: int = 0

    @property
    def has_raised(self) -> bool:
        """Return whether ``number`` instructions were reached."""
        return self.count >= self.number

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Count instructions in this block, in functions that are called from here on."""
        before = sys.gettrace()
        # Python 3.12 decides by this frame whether to report instructions at all.
        sys._getframe().f_trace_opcodes = True  # noqa: SLF001
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.has_raised or frame.f_code.co_filename not in self._files:
            return None
        # Python 3.13 reports the instructions of a frame only if it is traced already when that is requested.
        frame.f_trace = self._in_frame
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._in_frame

    def _in_frame(self, _: FrameType, event: str, __: Any) -> Any:
        if event == "opcode" and not self.has_raised:
            self.count += 1
            if self.has_raised:
                raise self._error
        return self._in_frame


def interrupts_at_each_opcode(
    *modules: ModuleType, error: type[BaseException] = Interrupted
) -> Iterator[OpcodeInterrupt]:
    """Yield an interrupt at the first instruction of the modules, the second …; end after the first that met none."""
    for number in range(1, MAX_INSTRUCTIONS):
        interrupt = OpcodeInterrupt(number, error, *modules)
        yield interrupt
        if not interrupt.has_raised:
            return
    raise AssertionError("it has no end")


def interrupted_at_each_opcode(call: Callable[[], object], *modules: ModuleType) -> Iterator[int]:
    """Make the call again and again, interrupted one instruction later each time; yield that number after each.

    It ends after the first call that no interrupt has met. An interrupt that the call has swallowed is an error.
    """
    for interrupt in interrupts_at_each_opcode(*modules):
        has_left = False
        try:
            with interrupt.traced():
                call()
        except Interrupted:
            has_left = True
        assert has_left == interrupt.has_raised, f"the interrupt at instruction {interrupt.number} was swallowed"
        yield interrupt.number
