"""A pytest plugin for CI: a test that did not run is a failure. ``python -m pytest -p tests.support.no_skips``.

A skip, an xfail and a deselection look green and prove nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _failed_if_skipped((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _failed_if_skipped((yield))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    if items:
        raise pytest.UsageError(f"deselected, which CI does not allow: {[item.nodeid for item in items]}")


def _failed_if_skipped(report: Report) -> Report:
    if report.skipped:
        report.outcome = "failed"
        # A skip's longrepr is (path, line, reason); an xfail's is a traceback, and with `wasxfail` it is no failure.
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if hasattr(report, "wasxfail"):
            reason = report.wasxfail
            del report.wasxfail
        report.longrepr = f"{report.nodeid} did not run, or was expected to fail; in CI that is a failure: {reason}"
    return report
