"""Wheel and sdist: their contents, and the same bytes from the same tree wherever and whenever it is built."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.distribution import faults_of_metadata, faults_of_sdist, faults_of_wheel, version_of
from tests.support.installations import ROOT, built, copied, files_of, unpack


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that a commit of this tree would have."""
    return copied(ROOT, files_of(ROOT), tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def dist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel and sdist of it."""
    folder = tmp_path_factory.mktemp("dist")
    return {kind: built(tree, folder, kind) for kind in ("wheel", "sdist")}


def test_wheel_and_sdist_have_no_faults(tree: Path, dist: Mapping[str, Path]) -> None:
    assert [*faults_of_wheel(dist["wheel"], tree), *faults_of_sdist(dist["sdist"])] == []
    version = version_of(tree)
    assert dist["wheel"].name == f"refresher-{version}-py3-none-any.whl"
    assert dist["sdist"].name == f"refresher-{version}.tar.gz"


def test_the_same_tree_makes_the_same_bytes(tree: Path, dist: Mapping[str, Path], tmp_path: Path) -> None:
    again = copied(tree, files_of(tree), tmp_path / "elsewhere")
    for name in files_of(again):
        (again / name).chmod(0o600)
        os.utime(again / name, (1, 1))
    for kind, made in dist.items():
        assert built(again, tmp_path / "dist", kind).read_bytes() == made.read_bytes(), kind


def test_the_sdist_makes_the_same_wheel(dist: Mapping[str, Path], tmp_path: Path) -> None:
    unpack(dist["sdist"], tmp_path)
    unpacked = tmp_path / dist["sdist"].name.removesuffix(".tar.gz")
    assert built(unpacked, tmp_path / "dist", "wheel").read_bytes() == dist["wheel"].read_bytes()


@pytest.mark.parametrize(
    ("leave_out", "put_in", "expected"),
    [
        ("api_client/py.typed", None, "wheel: api_client/py.typed is missing"),
        ("api_client/protocol/lua/renew.lua", None, "wheel: api_client/protocol/lua/renew.lua is missing"),
        ("refresher/web/page.css", None, "wheel: refresher/web/page.css is missing"),
        ("LICENSE", None, "wheel: the licence is missing"),
        ("entry_points.txt", None, "wheel: there is no command `refresher`"),
        (None, "tests/conftest.py", "wheel: tests/conftest.py does not belong there"),
    ],
)
def test_a_fault_of_a_wheel_is_reported(
    tree: Path, dist: Mapping[str, Path], tmp_path: Path, leave_out: str | None, put_in: str | None, expected: str
) -> None:
    changed = tmp_path / dist["wheel"].name
    with zipfile.ZipFile(dist["wheel"]) as archive, zipfile.ZipFile(changed, "w") as target:
        for name in archive.namelist():
            if leave_out is None or not name.endswith(leave_out):
                target.writestr(name, archive.read(name))
        if put_in is not None:
            target.writestr(put_in, "")
    assert list(faults_of_wheel(changed, tree)) == [expected]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("\nVersion: ", "\nVersion: 9", "metadata: version 9"),
        ("\nLicense-Expression: Apache-2.0", "", "metadata: the licence is not named"),
        ("Topic :: Database", "Topic :: Graphs that are asked", "there is no classifier 'Topic :: Graphs"),
        ("](https://example.org/refresher/blob/", "](docs/../", "leads nowhere on an index"),
        ("text/markdown", "text/plain", "the description is not the read me"),
        ("\nRequires-Dist: celery", "\nRequires-Dist: neo4j", "a reader's installation would bring"),
    ],
)
def test_a_fault_of_the_metadata_is_reported(
    tree: Path, dist: Mapping[str, Path], before: str, after: str, expected: str
) -> None:
    with zipfile.ZipFile(dist["wheel"]) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode()
    assert list(faults_of_metadata(text.encode(), tree)) == []
    (fault,) = faults_of_metadata(text.replace(before, after, 1).encode(), tree)
    assert expected in fault
