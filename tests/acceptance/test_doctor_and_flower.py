"""What doctor says of a real Flower, which hears of a real worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from refresher.ops import doctor as doctor_flower
from refresher.ops.findings import Level
from tests.acceptance.conftest import System
from tests.support.flower import Flower
from tests.support.waiting import eventually


@pytest.mark.slow
def test_a_flower_hears_of_the_worker_until_it_is_gone(system: System, tmp_path: Path) -> None:
    system.start_worker()
    flower = Flower(system.env, tmp_path)
    try:
        eventually(lambda: doctor_flower.flower(flower.url).level is Level.OK, 90, "it hears")
    finally:
        flower.process.kill()
    found = doctor_flower.flower(flower.url)
    assert (found.level, found.said.startswith(f"no Flower at {flower.url}: ")) == (Level.WARNING, True)
