"""The feed's error."""

from __future__ import annotations

from refresher.errors import RefresherError


class FeedError(RefresherError):
    """The feed can't be installed, or can't run. The message is for the operator, with the remedy."""
