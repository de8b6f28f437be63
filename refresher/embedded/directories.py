"""Temporary directories that a signal can't leave behind."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path


def new_directory(prefix: str) -> Path:
    """Return the path of a temporary directory that is not there yet.

    `tempfile.mkdtemp` makes one before its caller has a name to remove it by: what a signal handler raises in between
    leaves it behind. Make this one in the ``try`` that removes it, with mode 0700.
    """
    return Path(tempfile.gettempdir(), prefix + secrets.token_hex(8))
