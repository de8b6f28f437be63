"""Installations of the project as users have it: built from a tree, where this tree can't be imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.waiting import MAX_WAIT_SECONDS

ROOT: Final = Path(__file__).parents[2]
EPOCH: Final = "1700000000"
PACKAGES: Final = ("api_client", "refresher")
WHAT_BUILDS: Final = (*PACKAGES, "pyproject.toml", "README.md", "LICENSE")
_NOT_OURS: Final = shutil.ignore_patterns("__pycache__")


def files_of(tree: Path) -> list[str]:
    """Return the files of a tree that git has or would add; all files outside of a repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        names = [path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()]
        return sorted(name for name in names if "__pycache__" not in name)
    return sorted(name for name in set(listed.stdout.split("\0")) if name and (tree / name).is_file())


def copied(tree: Path, names: Sequence[str], target: Path) -> Path:
    """Copy files and folders of a tree, without Python's compiled files."""
    for name in names:
        source, destination = tree / name, target / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, destination, ignore=_NOT_OURS, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, destination)
    return target


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tarball. Not by tarfile: Pythons before 3.11.4 lack the filter that later ones require."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)  # noqa: S607


def built(tree: Path, target: Path, kind: str) -> Path:
    """Build the ``wheel`` or the ``sdist`` of a tree."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target],
        cwd=tree, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH}, capture_output=True, check=True,
        timeout=2 * MAX_WAIT_SECONDS,
    )  # fmt: skip
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@dataclass(frozen=True)
class Installation:
    """One release in an environment of its own, in which this tree can't be imported."""

    folder: Path

    @property
    def python(self) -> Path:
        """Return the interpreter of its environment."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Return the folder of its packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"


def installed(wheel: Path, folder: Path) -> Installation:
    """Install a wheel without any index: its dependencies are those of the environment that runs the tests."""
    venv.create(folder, symlinks=True, with_pip=False)
    made = Installation(folder)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(made.packages)
    # A plain line of a .pth file: that environment's own .pth files, as the one for this tree, have no effect here.
    shared = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (made.packages / "shared.pth").write_text("\n".join(shared) + "\n")
    return made
