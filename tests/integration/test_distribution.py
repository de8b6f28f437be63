"""Wheel and sdist: their contents, and the same bytes from the same tree wherever and whenever it is built."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.distribution import faults_of_sdist, faults_of_wheel, version_of
from tests.support.installations import ROOT, built, copied, files_of, unpack

pytestmark = pytest.mark.git


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
