"""State kept per event loop."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


class PerLoop(dict[asyncio.AbstractEventLoop, T]):
    """One object per event loop; the objects of closed loops are dropped when another loop gets its own.

    Tasks that were pending when their loop was closed never run again, so nothing else would remove their objects. A
    loop in this dict stays alive, so that no other loop can get its hash. Loops of several threads may use it.
    """

    __slots__ = ()

    def __setitem__(self, loop: asyncio.AbstractEventLoop, value: T) -> None:
        """Set the object of ``loop``."""
        for other in list(self):  # a copy, since loops of other threads come and go
            if other.is_closed():
                self.pop(other, None)
        super().__setitem__(loop, value)
