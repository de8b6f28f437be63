"""The Dockerfile, its build context, and the systemd units: valid by their tools, and consistent with each other."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from tests.support.deployment_files import DEPLOY, ROOT, compose, directives, image, stages
from tests.support.requirements import run, skip_or_fail, tool

SERVICES = compose()["services"]
UNITS = sorted(DEPLOY.glob("*.service"))


def test_health_checks_of_compose_include_those_of_the_images() -> None:
    assert SERVICES["application"]["healthcheck"]["test"] == ["CMD", *image("application")["HEALTHCHECK"]]
    assert image("worker")["HEALTHCHECK"] == [*SERVICES["worker"]["healthcheck"]["test"][1:], "--live"]


def test_hadolint_accepts_the_dockerfile() -> None:
    done = run(tool("hadolint"), "--no-color", "deploy/Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def goes_to_the_builder(path: str, patterns: list[str]) -> bool:
    """Whether .dockerignore leaves a file in: the last pattern that it, or a folder above it, matches decides."""
    parents = ["/".join(path.split("/")[: depth + 1]) for depth in range(path.count("/") + 1)]
    taken = True
    for pattern in patterns:
        plain = pattern.removeprefix("!")
        anywhere = plain.startswith("**/") and any(one.split("/")[-1] == plain.removeprefix("**/") for one in parents)
        if anywhere or any(fnmatch.fnmatchcase(one, plain) for one in parents):
            taken = pattern.startswith("!")
    return taken


@pytest.mark.git
def test_the_build_context_has_the_copied_files_and_no_others() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    copied = [
        source
        for stage in stages().values()
        for word, rest in stage
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert all((ROOT / source).exists() for source in copied)
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode:
        skip_or_fail("not a git checkout")
    taken = {file for file in listed.stdout.split("\0") if file and goes_to_the_builder(file, patterns)}
    assert {file for file in taken if not any(file == one or file.startswith(f"{one}/") for one in copied)} == set()
    assert {one for one in copied if not any(file == one or file.startswith(f"{one}/") for file in taken)} == set()
    for secret in ("deploy/secrets/worker.env", ".git/config", "api_client/__pycache__/x.pyc"):
        assert not goes_to_the_builder(secret, patterns), secret


@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """The units for systemd-analyze, with a program in place of Celery that exists here."""
    folder = tmp_path / "units"
    folder.mkdir()
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/opt/refresher/bin/celery", "/bin/true")
        (folder / unit.name).write_text(text, encoding="utf-8")
    return [str(folder / unit.name) for unit in UNITS]


@pytest.mark.container
def test_systemd_accepts_the_units_and_rates_their_exposure_low(installed: list[str]) -> None:
    assert [unit.name for unit in UNITS] == ["refresher-flower.service", "refresher-worker.service"]
    analyze = tool("systemd-analyze")
    verified = run(analyze, "verify", "--man=no", *installed)
    about_ours = [line for line in verified.stderr.splitlines() if "refresher" in line]
    assert (verified.returncode, about_ours) == (0, [])
    rated = run(analyze, "security", "--offline=true", "--threshold=15", "--no-pager", *installed)
    assert rated.returncode == 0, rated.stdout


def test_systemd_units_and_images_start_the_same_commands() -> None:
    def words(unit: Path) -> list[str]:
        return directives(unit, "ExecStart")[0].replace("/opt/refresher/bin/", "").split()

    flower, worker = UNITS
    assert [word.replace("%H", "%h") for word in words(worker)] == image("worker")["CMD"]
    in_container = SERVICES["flower"]["command"]
    assert words(flower) == [word.replace("/deploy/", "/etc/refresher/") for word in in_container]
