"""Temporary directories that a signal can't leave behind."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path


def new_directory(prefix: str) -> Path:
    """Return the path of a temporary directory that does not exist yet.

    `tempfile.mkdtemp` makes a directory before its caller has a name to remove it by, so an exception from a signal
    handler in between leaves it behind. Make this one, with mode 0700, in the ``try`` that removes it.
    """
    return Path(tempfile.gettempdir(), prefix + secrets.token_hex(8))
