"""``@cache.early`` of cashews."""

from __future__ import annotations

from typing import Any, cast

from benchmarks.stampede.strategies.cashews import Cashews, Read


class CashewsEarly(Cashews):
    """Past its early expiry one reader's process recomputes in the background, the others serve the old value."""

    name = "cashews-early"
    title = "cashews early"
    cannot = (
        "A miss is not protected beyond its own process. The lock lasts as long as the early expiry, which can't be "
        "set, and is deleted by whoever ends, so that a crash stops recomputing for that long."
    )

    def decorated(self, cache: Any, compute: Read) -> Read:
        """Decorate."""
        decorator = cache.early(
            ttl=self.terms.hard_seconds, early_ttl=self.terms.expires_seconds, key="{number}", prefix=self.prefix
        )
        return cast("Read", decorator(compute))
