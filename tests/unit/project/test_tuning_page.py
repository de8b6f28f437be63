"""The figures of the page on tuning, compared with the formula of the decision itself."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from api_client.protocol.xfetch import should_refresh

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "tune.md"
HEAD = "| reads while β·δ passes |"
KEYS = 4_000


def rows() -> list[tuple[float, str, str]]:
    lines = PAGE.read_text(encoding="utf-8").split(HEAD)[1].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [(float(reads.replace(",", "")), share, lead) for reads, share, lead in cells]


@pytest.mark.parametrize(("reads", "share", "lead"), rows(), ids=str)
def test_the_tuning_table_matches_the_formula(reads: float, share: str, lead: str) -> None:
    early = 1 - math.exp(-reads)
    assert share == ("> 99 %" if early > 0.99 else f"{early:.0%}".replace("%", " %"))
    assert lead == (f"{math.log(reads / math.log(2)):.2f}" if early > 0.5 else "–")


@pytest.mark.parametrize(("reads", "share", "lead"), [row for row in rows() if row[0] <= 10], ids=str)
def test_simulated_readers_refresh_as_early_as_the_tuning_table_says(reads: float, share: str, lead: str) -> None:
    """β·δ = 1 s. Reads come at random; the first positive decision of the code is the refresh."""
    rng = random.Random(7)  # noqa: S311 - no secret
    leads = sorted((first_lead(reads, rng) for _ in range(KEYS)), reverse=True)
    assert sum(one > 0 for one in leads) / KEYS == pytest.approx(1 - math.exp(-reads), abs=0.02)
    if lead != "–":
        assert leads[KEYS // 2] == pytest.approx(float(lead), abs=0.1)


def first_lead(reads_per_second: float, rng: random.Random) -> float:
    left = 30.0
    while (left := left - rng.expovariate(reads_per_second)) > 0:
        if should_refresh(0, int(left * 1e6), delta_seconds=1, beta=1, ttl_seconds=1e6, u=1 - rng.random()):
            return left
    return 0.0
