"""A run that fails or is interrupted keeps what was measured, and ends its servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.errors import BenchError
from benchmarks.options import Options
from benchmarks.reports.kept import load_all
from benchmarks.reports.report import Groups, report
from benchmarks.reports.results import Result, figure


def measured() -> Result:
    return Result("first", "a first group", [figure("reads", (1.0, 2.0, 3.0), "")])


def failing() -> Result:
    raise BenchError("a worker did not start")


def interrupted() -> Result:
    raise KeyboardInterrupt


def run(out: Path, groups: Groups) -> None:
    report("hits", Options(out=out), Console(quiet=True), groups, versions={})


def kept(out: Path) -> dict[str, Result]:
    (saved,) = load_all(out)
    return {result.group: result for result in saved.results}


def test_a_group_that_fails_is_kept_with_its_reason_beside_the_others(tmp_path: Path) -> None:
    groups = {"second": failing, "first": measured}
    with pytest.raises(BenchError, match="not measured: second"):
        run(tmp_path, (pair for pair in groups.items()))
    found = kept(tmp_path)
    assert found["second"].figures[0].note == "a worker did not start"
    assert found["first"].figures[0].value == 2.0


def test_ctrl_c_keeps_the_groups_before_it_and_ends_the_servers(tmp_path: Path) -> None:
    ended = []

    def groups() -> Groups:
        try:
            yield "first", measured
            yield "second", interrupted
        finally:
            ended.append("servers")

    run(tmp_path, groups())
    assert (list(kept(tmp_path)), ended) == (["first"], ["servers"])


def test_ctrl_c_before_anything_was_measured_keeps_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, (pair for pair in {"first": interrupted}.items()))
    assert list(tmp_path.iterdir()) == []
