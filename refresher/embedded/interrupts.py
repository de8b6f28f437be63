"""Ctrl-C in a command that runs servers, never lost, and ignored while they are being stopped."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class Interrupts:
    """Signals that raise KeyboardInterrupt in the main thread. Made by `handled`.

    Python drops exceptions raised during a ``__del__`` or a weak reference's callback, such as the one that ends each
    import, so a long run also has to call `check` repeatedly.
    """

    def __init__(self, numbers: tuple[signal.Signals, ...]) -> None:
        self._numbers = numbers
        self._came = False

    @classmethod
    @contextmanager
    def handled(cls, *numbers: signal.Signals) -> Iterator[Self]:
        """Handle these signals in the block; an ignored one, such as Ctrl-C in a shell's background, stays ignored."""
        before = {number: signal.getsignal(number) for number in numbers}
        interrupts = cls(tuple(number for number in numbers if before[number] is not signal.SIG_IGN))
        for number in interrupts._numbers:
            signal.signal(number, interrupts._interrupt)
        try:
            with _drops_unreported():
                yield interrupts
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        signal.default_int_handler(number, frame)

    def check(self) -> None:
        """Raise the KeyboardInterrupt of an earlier signal."""
        if self._came:
            raise KeyboardInterrupt

    def ignore(self) -> None:
        """Ignore the signals until the end of the block."""
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def _drops_unreported() -> Iterator[None]:
    """Keep Python from printing a KeyboardInterrupt that it drops, since `Interrupts.check` raises it again."""
    report = sys.unraisablehook

    def report_others(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            report(dropped)

    sys.unraisablehook = report_others
    try:
        yield
    finally:
        sys.unraisablehook = report
