"""The error of ``refresher dev``."""

from __future__ import annotations

from refresher.errors import RefresherError


class DevError(RefresherError):
    """It can't start. The message is for the user, with the remedy."""
