"""Errors of the benchmarks."""

from __future__ import annotations

from refresher.errors import RefresherError


class BenchError(RefresherError):
    """A benchmark can't be run, or measured something else than it says; the message is meant for the user."""
