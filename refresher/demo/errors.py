"""The demo's error."""

from __future__ import annotations

from refresher.errors import RefresherError


class DemoError(RefresherError):
    """The demo can't run; the message tells the user the remedy."""
