"""What the graph had to do: how many loads, and for how long it was busy with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOADS_KEY: Final = "topology:loads"
"""The hash in the control database to which workers add theirs; its fields follow."""
LOADS_FIELD: Final = "loads"
BUSY_FIELD: Final = "busy_seconds"


@dataclass(frozen=True, slots=True)
class OriginLoad:
    """Counted since some moment. ``busy_seconds`` adds up what queries took, without any pause."""

    loads: int = 0
    busy_seconds: float = 0.0

    def since(self, before: OriginLoad) -> OriginLoad:
        """Return what has come since ``before``."""
        return OriginLoad(self.loads - before.loads, self.busy_seconds - before.busy_seconds)
