"""Reader, contract and main job against the wheel, where this tree can't be imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.distribution import version_of
from tests.support.installations import PACKAGES, ROOT, WHAT_BUILDS, Installation, built, copied, files_of, installed
from tests.support.waiting import MAX_WAIT_SECONDS

SELECTED = (
    "tests/contract/test_public_surface.py",
    "tests/contract/test_wire_formats.py",
    "tests/contract/test_lease_steps.py",
    "tests/integration/reader/test_hits.py",
    "tests/integration/reader/test_misses.py",
    "tests/acceptance/test_main_job.py::test_a_stale_value_is_served_at_once_and_refreshed_after[sync]",
    "tests/acceptance/test_main_job.py::test_a_stale_value_is_served_at_once_and_refreshed_after[async]",
)
WHERE_THE_FIXES_SHOW = ("tests/acceptance/worker_faults/test_lost_connections.py", "tests/acceptance/test_poison.py")
WHERE_IT_IS = "import api_client, refresher; print(api_client.__file__, refresher.__file__, api_client.__version__)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel of this tree, installed."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = copied(ROOT, WHAT_BUILDS, folder / "tree")
    return installed(built(tree, folder / "dist", "wheel"), folder / "venv")


def run(made: Installation, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    return subprocess.run(
        [made.python, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=8 * MAX_WAIT_SECONDS,
    )


def test_the_wheel_contains_both_packages_and_the_command(made: Installation, tmp_path: Path) -> None:
    own, worker, version = run(made, tmp_path, "-c", WHERE_IT_IS).stdout.split()
    assert (Path(own).parent, Path(worker).parent) == (made.packages / "api_client", made.packages / "refresher")
    assert version == version_of(ROOT)
    helped = run(made, tmp_path, "-m", "refresher.cli", "--help")
    assert (helped.returncode, "doctor" in helped.stdout) == (0, True), helped.stderr


def oldest_allowed() -> list[str]:
    """The oldest version of each package that the project may be installed with, as pip takes it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    given = [*project["dependencies"], *extras["worker"], *extras["flower"], *extras["metrics"]]
    bounds = ((one.name, part) for one in map(Requirement, given) for part in one.specifier)
    # The worker's own come later than the reader's, and may be narrower.
    oldest = {name: part.version for name, part in bounds if part.operator == ">="}
    return [f"{name}=={version}" for name, version in oldest.items()]


def with_other_packages(made: Installation, *wanted: str) -> None:
    """Install packages beside it, which take precedence over those of the environment that runs the tests."""
    pip = ("uv", "pip") if shutil.which("uv") else (sys.executable, "-m", "pip")
    options = ("--quiet", "--upgrade", "--no-deps", "--target", str(made.packages))
    subprocess.run([*pip, "install", *options, *wanted], check=True)


@pytest.mark.long
@pytest.mark.timeout(10 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize(
    "packages",
    [
        # Newer than the project's bounds allow, once there is one: what fails here is what such a release needs.
        pytest.param(("celery", "kombu", "billiard", "vine", "amqp"), id="newest Celery"),
        pytest.param(tuple(oldest_allowed()), id="oldest"),
    ],
)
def test_the_wheel_works_with_the_newest_and_the_oldest_dependencies(packages: tuple[str, ...], tmp_path: Path) -> None:
    tree = copied(ROOT, WHAT_BUILDS, tmp_path / "tree")
    made = installed(built(tree, tmp_path / "dist", "wheel"), tmp_path / "venv")
    with_other_packages(made, *packages)
    beside = copied(ROOT, [name for name in files_of(ROOT) if not name.startswith(PACKAGES)], tmp_path / "beside")
    parts = ("tests/unit/api_client", "tests/unit/refresher", *WHERE_THE_FIXES_SHOW, *SELECTED)
    done = run(made, beside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *parts)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]


@pytest.mark.timeout(10 * MAX_WAIT_SECONDS)
def test_selected_tests_pass_against_the_wheel(made: Installation, tmp_path: Path) -> None:
    copied(
        ROOT,
        ("tests", "benchmarks/__init__.py", "benchmarks/apparatus", "pyproject.toml", "docs/reference/metrics.md"),
        tmp_path,
    )
    done = run(made, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTED)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout
