"""Every extra but ``dev`` installs without a compiler: each package that it needs has a wheel, on each machine."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.support.waiting import MAX_WAIT_SECONDS

ROOT: Final = Path(__file__).parents[2]
MACHINES: Final = {
    "Linux x86_64": [f"manylinux_2_{minor}_x86_64" for minor in (5, 12, 17, 28, 34)] + ["manylinux2014_x86_64"],
    "Linux aarch64": [f"manylinux_2_{minor}_aarch64" for minor in (17, 28, 34)] + ["manylinux2014_aarch64"],
    "macOS arm64": [f"macosx_{major}_0_{kind}" for major in (11, 12, 13, 14) for kind in ("arm64", "universal2")]
    + [f"macosx_10_{minor}_universal2" for minor in (9, 13, 15)],
}
"""What pip may install, from the oldest system that ArcadeDB's wheel runs on."""


def requirements() -> set[str]:
    """Return what the project and its extras require, but for ``dev`` and for their own names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: given for name, given in project["optional-dependencies"].items() if name != "dev"}
    given = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]
    return {one for one in given if Requirement(one).name != project["name"]}


@pytest.mark.long
@pytest.mark.timeout(5 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_each_package_of_each_extra_has_a_wheel(python: str, machine: str, tmp_path: Path) -> None:
    options = ("--dry-run", "--ignore-installed", "--target", str(tmp_path), "--only-binary", ":all:", "--quiet")
    target = ("--implementation", "cp", "--python-version", python, *(f"--platform={tag}" for tag in MACHINES[machine]))
    command = (sys.executable, "-m", "pip", "install", *options, *target, "-c", str(ROOT / "constraints.txt"))
    done = subprocess.run([*command, *sorted(requirements())], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
