"""One check of doctor's, run alone."""

from __future__ import annotations

from typing import Any

from api_client import ReaderSettings
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Finding
from refresher.ops.doctor.registry import CHECKS, run_checks
from refresher.settings import WorkerSettings


def run_check(
    name: str, *, flower_url: str = "", as_reader: bool = False, reader: ReaderSettings | None = None, **settings: Any
) -> Finding:
    """Return the one finding of a check, with these settings of a worker."""
    reader = reader or ReaderSettings()
    with Deployment(WorkerSettings(**settings), reader, flower_url, as_reader=as_reader) as deployment:
        (found,) = run_checks(deployment, [check for check in CHECKS if check.name == name])
    return found
