"""Modules that `refresher dev` can't import: it names them before it starts anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from refresher.cli.commands import EXPECTED_ERRORS
from refresher.dev.run import DevOptions, run_dev


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ([], "name the module that uses @query: refresher dev my_queries"),
        (["my_queries.py"], "'my_queries.py' is not a module's name: refresher dev my_queries"),
        (["./my_queries.py"], "'./my_queries.py' is not a module's name: refresher dev my_queries"),
        (["not_there"], "there is no module not_there in "),
        (["broken"], "REFRESHER_QUERIES='broken' is not valid: importing it failed with SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: list[str], said: str
) -> None:
    (tmp_path / "broken.py").write_text("(")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # which it sets, and is put back here
    printed: list[str] = []
    with pytest.raises(EXPECTED_ERRORS) as caught:
        run_dev(DevOptions(modules), printed.append)
    assert str(caught.value).startswith(said)
    assert (printed, [path.name for path in tmp_path.iterdir()]) == ([], ["broken.py"])
