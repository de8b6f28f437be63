"""State of event loops."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


class PerLoop(dict[asyncio.AbstractEventLoop, T]):
    """One object per event loop; those of closed loops are dropped when another loop gets its own.

    Tasks that were pending when their loop was closed never run again, so nothing else would remove what is theirs. A
    loop that is in here stays alive: no other one can have its hash meanwhile. Loops of several threads may use it.
    """

    __slots__ = ()

    def __setitem__(self, loop: asyncio.AbstractEventLoop, value: T) -> None:
        """Set what belongs to ``loop``."""
        for other in list(self):  # a copy: the loops of other threads come and go meanwhile
            if other.is_closed():
                self.pop(other, None)
        super().__setitem__(loop, value)
