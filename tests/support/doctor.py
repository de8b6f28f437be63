"""One check of doctor's, run alone; and a worker for whose reply doctor waits."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import pytest
from celery.app.control import Control

from api_client import ReaderSettings
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Finding
from refresher.ops.doctor.registry import CHECKS, run_checks
from refresher.settings import WorkerSettings
from tests.support.waiting import MAX_WAIT_SECONDS


def run_check(name: str, *, as_reader: bool = False, reader: ReaderSettings | None = None, **settings: Any) -> Finding:
    """Return the one finding of a check, with these settings of a worker."""
    reader = reader or ReaderSettings()
    with Deployment(WorkerSettings(**settings), reader, as_reader=as_reader) as deployment:
        (found,) = run_checks(deployment, [check for check in CHECKS if check.name == name])
    return found


def wait_for_one_worker(patch: pytest.MonkeyPatch) -> None:
    """Let commands, in this process, wait for a worker's reply, which may be late on a busy machine, and for no other.

    The worker has to have taken messages, or a command: before, it may be ready and not hear them.
    """
    for module in ("broker", "doctor.broker"):
        patch.setattr(f"refresher.ops.{module}.ANSWER_SECONDS", MAX_WAIT_SECONDS)
    patch.setattr(Control, "broadcast", partialmethod(Control.broadcast, limit=1))
