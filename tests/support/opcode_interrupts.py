"""An exception raised before each bytecode instruction of some modules in turn, as a signal handler could raise it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType, ModuleType
from typing import Any


class Interrupted(BaseException):
    """What the interrupt raises."""


class _Tracer:
    """Raises once, before the ``number``-th instruction of the modules' functions."""

    def __init__(self, files: Collection[str], number: int) -> None:
        self._files, self._left = files, number
        self.has_raised = False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self._left -= 1
            if not self._left:
                self.has_raised = True
                raise Interrupted
        return self


def interrupted_at_each_opcode(call: Callable[[], object], *modules: ModuleType) -> Iterator[int]:
    """Make the call again and again, interrupted one instruction later each time; yield that number after each.

    It ends after the first call that no interrupt has met. An interrupt that the call has swallowed is an error.
    """
    files = {module.__file__ or "" for module in modules}
    number, is_met = 0, True
    while is_met:
        number += 1
        tracer, before = _Tracer(files, number), sys.gettrace()
        sys.settrace(tracer)
        try:
            call()
        except Interrupted:
            has_left = True
        else:
            has_left = False
        finally:
            sys.settrace(before)
        assert has_left == tracer.has_raised, f"the interrupt at instruction {number} was swallowed"
        is_met = tracer.has_raised
        yield number
