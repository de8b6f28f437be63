"""``@cache.soft`` of cashews."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from benchmarks.stampede.strategies.cashews import Cashews, Read


class CashewsSoft(Cashews):
    """Past its soft expiry a value is recomputed, and served still where that fails."""

    name = "cashews-soft"
    title = "cashews soft"
    cannot = "Stale values are for failures: past the soft expiry each process recomputes, and its readers wait."
    unseen: ClassVar[tuple[str, ...]] = ("contention", "ducked_out")

    def decorated(self, cache: Any, compute: Read) -> Read:
        """Decorate."""
        decorator = cache.soft(
            ttl=self.terms.hard_seconds, soft_ttl=self.terms.expires_seconds, key="{number}", prefix=self.prefix
        )
        return cast("Read", decorator(compute))
