"""The demo's error."""

from __future__ import annotations

from refresher.errors import RefresherError


class DemoError(RefresherError):
    """The demo can't run. The message is for the user, with the remedy."""
