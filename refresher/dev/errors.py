"""The error of ``refresher dev``."""

from __future__ import annotations

from refresher.errors import RefresherError


class DevError(RefresherError):
    """``refresher dev`` can't start; the message tells the user the remedy."""
