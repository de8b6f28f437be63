"""A run whose one group fails keeps what the others have measured, and says so at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from api_client import CacheUnavailable
from benchmarks.errors import BenchError
from benchmarks.figures import Figure, Result
from benchmarks.hits import run
from benchmarks.hits.group import Group, Setting
from benchmarks.options import BenchOptions
from benchmarks.places import Place, place


@dataclass(frozen=True, slots=True)
class Good(Group):
    def run(self, setting: Setting) -> Result:
        return Result(self.name, self.title, figures=(Figure(self.name, "answer", (42.0,)),))


@dataclass(frozen=True, slots=True)
class Bad(Group):
    def run(self, setting: Setting) -> Result:
        raise CacheUnavailable("it is gone")


@contextmanager
def nowhere(_: str | None) -> Iterator[Place]:
    yield Place("redis://nowhere", "redis://nowhere", "redis://nowhere", "none", "7.0.0", "bench")


def test_a_group_that_fails_does_not_take_the_others_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "place", nowhere)
    monkeypatch.setattr(run, "chosen", lambda _: [Bad("bad", "one that fails"), Good("good", "one that does not")])
    screen = StringIO()
    with pytest.raises(BenchError, match="not measured: bad; the table says why"):
        run.run_hits(BenchOptions(out=tmp_path), Console(file=screen, width=150))
    bad, good = json.loads((tmp_path / "hits.json").read_text())["results"]
    assert (bad["figures"][0]["value"], bad["figures"][0]["note"]) == (None, "it is gone")
    assert good["figures"][0]["value"] == 42
    assert "it is gone" in screen.getvalue()


@dataclass(frozen=True, slots=True)
class Interrupted(Group):
    def run(self, setting: Setting) -> Result:
        raise KeyboardInterrupt


@pytest.mark.parametrize("is_first", [False, True])
def test_ctrl_c_keeps_the_groups_that_were_measured_by_then(
    is_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, later = Good("good", "measured"), Good("later", "never begun")
    groups = [Interrupted("ended", "interrupted"), good] if is_first else [good, Interrupted("ended", "-"), later]
    monkeypatch.setattr(run, "place", nowhere)
    monkeypatch.setattr(run, "chosen", lambda _: groups)
    screen = StringIO()
    if is_first:
        with pytest.raises(KeyboardInterrupt):
            run.run_hits(BenchOptions(out=tmp_path), Console(file=screen, width=150))
        assert list(tmp_path.iterdir()) == []
        return
    run.run_hits(BenchOptions(out=tmp_path), Console(file=screen, width=150))
    assert [result["group"] for result in json.loads((tmp_path / "hits.json").read_text())["results"]] == ["good"]
    assert "interrupted: what follows" in screen.getvalue()


@pytest.mark.parametrize("url", ["redis+sentinel://localhost:1/main/0", "redis+cluster://localhost:1"])
def test_a_redis_that_does_not_stand_alone_is_refused_at_once(url: str) -> None:
    with pytest.raises(BenchError, match="needs one Redis alone"), place(url):
        pass
