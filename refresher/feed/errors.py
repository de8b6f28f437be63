"""The feed's error."""

from __future__ import annotations

from refresher.errors import RefresherError


class FeedError(RefresherError):
    """The feed can't be installed or can't run; the message tells the operator the remedy."""
