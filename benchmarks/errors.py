"""Errors of the benchmarks."""

from __future__ import annotations

from refresher.errors import RefresherError


class BenchError(RefresherError):
    """A benchmark can't be run, or measured something else than it says; the message is meant for the user.

    Whatever measures may raise it, and the errors of servers and caches: `reports.report` keeps what else was measured.
    """
