"""Errors of the benchmarks."""

from __future__ import annotations

from refresher.errors import RefresherError


class BenchError(RefresherError):
    """A benchmark can't be run, or measured something other than it claims; the message is for the user.

    Measurements may raise it, as well as errors of servers and caches; `reports.report` keeps the other results.
    """
