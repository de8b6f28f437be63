"""Packages that may be missing."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec


def not_installed(modules: Iterable[str]) -> str:
    """Say which modules can't be imported; empty when all can."""
    absent = [module for module in modules if find_spec(module) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""
