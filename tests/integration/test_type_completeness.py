"""Everything public is annotated, as a type checker of a user sees it: nothing is left to be inferred."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.requirements import skip_or_fail

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("package", ["api_client", "refresher"])
def test_every_public_symbol_has_a_known_type(package: str, tmp_path: Path) -> None:
    if find_spec("pyright") is None:
        skip_or_fail("pyright is not installed: the extra dev has it")
    # It queries the first python on PATH for the location of packages.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--verifytypes", package, "--ignoreexternal", "--outputjson"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "PATH": path, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )  # fmt: skip
    report = json.loads(checked.stdout)["typeCompleteness"]
    unknown = [symbol["name"] for symbol in report["symbols"] if symbol["isExported"] and not symbol["isTypeKnown"]]
    assert unknown == []
    assert report["completenessScore"] == 1
    assert len(report["symbols"]) > 100
