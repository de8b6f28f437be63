"""The version, in every place that repeats it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import api_client

ROOT = Path(__file__).parents[3]
VERSION = api_client.__version__

# The files that repeat it, since nothing can be computed there, and its pattern in each.
REPEATED = {
    "deploy/Dockerfile": r'org[.]opencontainers[.]image[.]version="([^"]+)"',
    "deploy/helm/*/Chart.yaml": r'^(?:appV|v)ersion: *"?([^"\s]+)"?$',
}


@pytest.mark.parametrize("pattern", REPEATED)
def test_each_file_that_repeats_the_version_has_the_same_one(pattern: str) -> None:
    paths = list(ROOT.glob(pattern))
    assert paths
    for path in paths:
        said = re.findall(REPEATED[pattern], path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(said) == {VERSION}, path.name


def test_the_changelog_has_a_section_for_the_version_dated_once_it_is_tagged() -> None:
    headings = re.findall(r"^## \[(.+?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0][0] == VERSION
    tagged = subprocess.run(
        ["git", "tag", "--list", f"v{VERSION}"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    for version, date in headings:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", date) or (version == VERSION and not tagged and date == "unreleased")
