"""The summary of what went wrong; that of a run that went well is read in `tests/acceptance/test_demo.py`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from refresher.demo.counts import Tally
from refresher.demo.outage import OutageReport
from refresher.demo.summary import Result, paragraphs
from refresher.demo.workers import WorkerCounts

FINE = Result(
    seconds=20.3, processes=2, tally=Tally(fresh=900, stale=80, misses=20), worker=WorkerCounts(committed=90),
    outage=OutageReport(10.02, 2.9, 0.8, 37, 2.41), soft_invalidations=7, hard_invalidations=5,
    slowest_repair_seconds=0.31, broken=[], failures=[], where="embedded ArcadeDB 26.10.2",
)  # fmt: skip
REFUSED = WorkerCounts(90, Counter(superseded=2, lost=1))


@pytest.mark.parametrize(
    ("result", "sentence", "is_fine"),
    [
        (
            replace(FINE, broken=["a went back"]),
            "BROKEN GUARANTEES after 12 invalidations (7 soft, 5 hard): a went back.", False,
        ),
        (replace(FINE, broken=list("abcdefg")), "a; b; c; d; e; and 2 more.", False),
        (replace(FINE, tally=Tally(failed=3)), "3 FAILED", False),
        (
            replace(FINE, outage=OutageReport(10.02, 2.9, 0.8, 37, 2.41, 3)),
            "37 keys had grown stale, and all but 3 were fresh again 2.4 s after it was ready.", True,
        ),
        (replace(FINE, tally=Tally(misses=9, gave_up=2)), "at most; 2 gave up: this machine is too busy.", True),
        (replace(FINE, tally=Tally(misses=1, gave_up=2)), "2 gave up", False),
        (replace(FINE, worker=REFUSED), "3 late writes were refused (1 lost, 2 superseded)", True),
        (replace(FINE, tally=Tally(dropped=4)), "4 triggers were dropped, because the queue was full", True),
        (replace(FINE, tally=Tally()), "0 reads", True),
    ],
)  # fmt: skip
def test_what_went_wrong_is_reported(result: Result, sentence: str, is_fine: bool) -> None:
    assert sentence in " ".join(paragraphs(result))
    assert result.is_fine is is_fine
