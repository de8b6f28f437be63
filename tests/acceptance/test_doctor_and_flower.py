"""Doctor's check of a real Flower, which monitors a real worker."""

from __future__ import annotations

from pathlib import Path

from refresher.ops.doctor.findings import Level
from tests.acceptance.conftest import System
from tests.support.doctor import run_check
from tests.support.flower import Flower
from tests.support.waiting import eventually


def test_doctor_reports_a_flower_that_monitors_the_worker_as_ok_and_warns_once_it_is_gone(
    system: System, tmp_path: Path
) -> None:
    system.start_worker()
    flower = Flower(system.env, tmp_path)
    try:
        eventually(lambda: run_check("flower", flower_url=flower.url).level is Level.OK, "Flower knows the worker")
    finally:
        flower.process.kill()
    found = run_check("flower", flower_url=flower.url)
    assert (found.level, found.message.startswith(f"no Flower at {flower.url}: ")) == (Level.WARNING, True)
