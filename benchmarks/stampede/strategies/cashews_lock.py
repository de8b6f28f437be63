"""``@cache(lock=True)`` of cashews."""

from __future__ import annotations

from typing import Any, cast

from benchmarks.stampede.strategies.cashews import Cashews, Read


class CashewsLock(Cashews):
    """One reader at a time looks, and recomputes where there is nothing."""

    name = "cashews-lock"
    title = "cashews lock"
    waits_busily = True
    cannot = (
        "The lock is around every read, hits too, and is asked for again and again without a pause. It lasts as long "
        "as the value does, which is how long a crash stops all."
    )

    def decorated(self, cache: Any, compute: Read) -> Read:
        """Decorate."""
        key = f"{self.prefix}:{{number}}"
        return cast("Read", cache(ttl=self.terms.expires_seconds, key=key, lock=True)(compute))
