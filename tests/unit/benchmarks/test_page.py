"""Tables, pictures, and the page that is made of what runs have kept."""

from __future__ import annotations

import csv
import json
import math
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks import commands
from benchmarks.about import about, made_folder
from benchmarks.commands import app
from benchmarks.errors import BenchError
from benchmarks.figures import Figure, Must, Rate, Result, Target
from benchmarks.page import draw_all, found, page
from benchmarks.plots import Plot, PlotKind, Series, draw
from benchmarks.report import present, show, write
from benchmarks.tables import Cell, Table, shown_cell, shown_column

LINES = Plot("over-time", "Recomputes", "time (s)", "recomputes", (
    Series("fetch", (0.0, 1.0, 2.0), (0.0, 40.0, 80.0), (0.0, 35.0, 70.0), (0.0, 45.0, 90.0)),
    Series("ours", (0.0, 1.0, 2.0), (0.0, 1.0, 2.0)),
), caption="Less is better.")  # fmt: skip
BARS = Plot("by-mode", "P95", "mode", "P95 (ms)", (
    Series("ours", ("plain", "none"), (2.0, 3.0), (1.0, 2.0), (4.0, 5.0)), Series("theirs", ("plain",), (9.0,)),
), kind=PlotKind.BARS, y_log=True)  # fmt: skip
RESULT = Result(
    "b", "B's scenario",
    (Rate("b", "ours", (1e-5,), (2.0,), (1.0,)), Rate("b", "peer", note="not installed: a|b")),
    (Figure("b", "misses", (0.0, 2.0), "", Target(Must.BE, 0), is_worst=True), Figure("b", "none", ())),
    (Table("totals", "what each did", ("strategy", "p99_ms", "errors"),
           (("ours", 1.23456, 0), ("peer", None, math.nan))),
     Table("events", "over time", ("at_s", "event"), ((0.5, "miss"),), is_shown=False)),
    (LINES, BARS),
)  # fmt: skip


def kept(folder: Path, name: str = "stampede") -> Path:
    write(folder, about(name, seed=7, options={"quick": True}, servers={"redis-server": "7.0"}), [RESULT])
    return folder


def test_a_run_keeps_its_tables_and_pictures_beside_the_json(tmp_path: Path) -> None:
    kept(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "by-mode.png", "by-mode.svg", "events.csv", "figures.csv", "over-time.png", "over-time.svg", "rates.csv",
        "stampede.json", "totals.csv",
    ]  # fmt: skip
    with (tmp_path / "totals.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["strategy", "p99_ms", "errors"], ["ours", "1.23456", "0"], ["peer", "", ""]]
    content = json.loads((tmp_path / "stampede.json").read_text(), parse_constant=pytest.fail)
    assert content["seed"] == 7
    assert content["versions"]["redis-server"] == "7.0"
    assert [table["name"] for table in content["results"][0]["tables"]] == ["totals"]
    assert content["results"][0]["tables"][0]["rows"][1] == ["peer", None, None]


@pytest.mark.parametrize("plot", [LINES, BARS], ids=lambda plot: plot.name)
def test_the_same_data_gives_the_same_picture_with_a_line_or_bar_for_each_figure(plot: Plot, tmp_path: Path) -> None:
    drawn = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        drawn.append([path.read_bytes() for path in draw(plot, tmp_path / name)])
    assert drawn[0] == drawn[1]
    png, svg = drawn[0]
    assert png.startswith(b"\x89PNG")
    assert svg.rstrip().endswith(b"</svg>")
    for colour in ("#0072b2", "#d55e00"):
        assert colour.encode() in svg


def test_people_see_what_is_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    show([RESULT], Console(width=150))
    out = capsys.readouterr().out
    assert "what each did" in out
    assert "p99 ms" in out
    assert "over time" not in out
    assert re.search(r"peer +│ +– │ +–", out)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [(None, "–"), (math.nan, "–"), (0.0, "0"), (0, "0"), (1_234_567, "1,234,567"), (1234.5, "1,234"), (1.23456, "1.23"),
     (0.01234, "0.0123"), (1e-9, "0.000000"), (math.inf, "inf"), ("text", "text")],
)  # fmt: skip
def test_a_cell_has_three_digits_that_mean_something(cell: Cell, shown: str) -> None:
    assert shown_cell(cell) == shown


def test_the_page_says_all_that_was_kept(tmp_path: Path) -> None:
    made = page(found(kept(tmp_path)), "results")
    assert "## stampede" in made
    assert "seed 7; quick True" in made
    assert "a quick run: it shows that all works" in made
    assert "| misses | 2.00 | 0 – 2.00 | = 0 | **no** |  |" in made
    assert "| peer | – | – | – | not installed: a\\|b |" in made
    assert "| ours | 1.23 | 0 |" in made
    assert "![Recomputes](results/over-time.svg)\n\nLess is better." in made
    assert "over time" not in made


def test_pictures_are_drawn_again_from_the_json_alone(tmp_path: Path) -> None:
    runs = found(kept(tmp_path / "run"))
    again = draw_all(runs, tmp_path / "again")
    assert [path.name for path in again] == ["over-time.svg", "by-mode.svg"]
    for path in again:
        assert path.read_bytes() == (tmp_path / "run" / path.name).read_bytes()


def test_benchmarks_stand_in_one_order_whatever_their_folders(tmp_path: Path) -> None:
    for name in ("simulate", "other", "hits", "stampede"):
        kept(tmp_path / name, name)
    assert list(found(tmp_path)) == ["hits", "stampede", "simulate", "other"]


def test_what_can_not_be_made_into_a_page_is_said(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="no results in"):
        found(tmp_path)
    kept(tmp_path / "a")
    kept(tmp_path / "b")
    with pytest.raises(BenchError, match="stampede is there twice"):
        found(tmp_path)
    for content, complaint in (("[]", "no benchmark's result"), ("{", "no benchmark's"), ('{"format": 1}', "format 1")):
        (tmp_path / "c").mkdir(exist_ok=True)
        (tmp_path / "c" / "x.json").write_text(content)
        with pytest.raises(BenchError, match=complaint):
            found(tmp_path / "c")


def test_a_folder_that_can_not_be_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", Path("/proc")):  # one that can't be made; one that nobody can write into
        with pytest.raises(BenchError, match="can't be written to"):
            made_folder(folder)
    assert list(made_folder(tmp_path / "new" / "one").iterdir()) == []


def test_what_can_not_be_kept_in_the_end_is_shown_and_then_said(tmp_path: Path) -> None:
    (tmp_path / "stampede.json").mkdir()
    screen = StringIO()
    with pytest.raises(BenchError, match=r"can't be written to .*: Is a directory"):
        present(tmp_path, about("stampede", seed=7, options={}, servers={}), [RESULT], Console(file=screen, width=150))
    assert "what each did" in screen.getvalue()


@pytest.mark.parametrize(
    ("out", "says"), [("results", "allowed is a file such as results.md"), ("there.md", "can't be written to")]
)
def test_a_page_that_can_not_be_written_is_one_line(out: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "there.md").mkdir()
    kept(tmp_path / "runs")
    done = CliRunner().invoke(app, ["page", str(tmp_path / "runs"), "--out", str(tmp_path / out)])
    assert isinstance(done.exception, SystemExit | BenchError)
    assert says in " ".join(f"{done.output} {done.exception}".replace("\u2502", "").split())


def test_what_is_not_installed_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "find_spec", lambda name: None if name == "matplotlib" else name)
    done = CliRunner().invoke(app, ["topology", "--out", str(tmp_path / "out")])
    assert str(done.exception) == "matplotlib is not installed: `make bench` installs it"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "shown"), [("p99_ms", "p99 ms"), ("reads_per_s", "reads/s"), ("us_each", "µs each"), ("β0", "β0")]
)
def test_headings_are_shown_as_people_write_them(column: str, shown: str) -> None:
    assert shown_column(column) == shown
