"""`refresher demo` on a terminal: its live table, and the picture of it."""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path

from tests.acceptance.test_demo import ROOT, SMALL
from tests.support.pictures import are_for_the_docs, keep
from tests.support.terminal import as_svg, last_screen, run_on_terminal
from tests.support.waiting import MAX_WAIT_SECONDS


def test_the_final_terminal_screen_of_the_demo(tmp_path: Path) -> None:
    graph = tmp_path / "friends.tsv.gz"
    graph.write_bytes(gzip.compress(SMALL.encode()))
    options = ["--seconds", "20"] if are_for_the_docs() else ["--seconds", "4", "--no-chaos"]
    code, written = run_on_terminal(
        [sys.executable, "-m", "refresher.cli", "demo", "--graph", str(graph), "--readers", "1", *options],
        ROOT, {**os.environ, "TMPDIR": str(tmp_path)}, 2 * MAX_WAIT_SECONDS,
    )  # fmt: skip
    assert code == 0, written
    screen = last_screen(written)
    assert screen.count("READS") == screen.count("graph loaded") == 1  # the last form of each alone
    said = " ".join(screen.split())  # lines may be broken anywhere
    assert said.index("servers started") < said.index("READS") < said.index("none failed")
    picture = as_svg(re.sub(r"password \S+", "password …", screen), "refresher demo --graph friends.tsv.gz")
    assert b"://" not in picture.replace(b"http://www.w3.org/", b"").replace(b"http://127.0.0.1", b"")
    keep("demo.svg", picture)
