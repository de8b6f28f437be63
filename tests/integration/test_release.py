"""`make release`: what it refuses, and that it tags only what was checked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.installations import ROOT, copied

pytestmark = pytest.mark.git

DATED = "## [1.2.3] - 2026-01-31\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of the files that a release looks at."""
    copied(ROOT, ("Makefile",), tmp_path)
    version = tmp_path / "api_client" / "_version.py"
    version.parent.mkdir()
    version.write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(DATED)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", *identity, *arguments], cwd=tree, capture_output=True, text=True, check=True)  # noqa: S607
    return done.stdout.strip()


def commit(tree: Path) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "x")


def release(tree: Path, checks: str) -> subprocess.CompletedProcess[str]:
    """Run it with a command in place of the make that checks and builds."""
    env = {
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "HOME": str(tree),
        "GIT_COMMITTER_NAME": "t",
        "EMAIL": "t@example.org",
    }
    make = ["make", "release", f"MAKE={checks}"]
    return subprocess.run(make, cwd=tree, env=env, capture_output=True, text=True, check=False)


def test_a_release_is_tagged_after_its_checks(tree: Path) -> None:
    done = release(tree, "echo checked:")
    assert done.returncode == 0, done.stderr
    assert "checked: check test dist wheeltest" in done.stdout
    assert "tagged v1.2.3" in done.stdout
    assert git(tree, "rev-parse", "v1.2.3^{commit}") == git(tree, "rev-parse", "HEAD")


def test_a_release_whose_checks_fail_is_not_tagged(tree: Path) -> None:
    assert release(tree, "false").returncode != 0
    assert git(tree, "tag") == ""


def test_a_version_is_released_once(tree: Path) -> None:
    git(tree, "tag", "v1.2.3")
    assert "error: v1.2.3 is tagged already: raise api_client/_version.py" in release(tree, "true").stderr


@pytest.mark.parametrize("heading", ["## [1.2.3] - unreleased\n", "## [1.2.2] - 2026-01-31\n"])
def test_a_release_requires_its_date_in_the_changelog(tree: Path, heading: str) -> None:
    (tree / "CHANGELOG.md").write_text(heading)
    commit(tree)
    assert "error: CHANGELOG.md has no date for 1.2.3: write ## [1.2.3] - 2" in release(tree, "true").stderr
    assert git(tree, "tag") == ""


def test_uncommitted_changes_are_not_released(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(DATED + "more\n")
    assert "error: uncommitted changes: commit them first" in release(tree, "true").stderr
    assert git(tree, "tag") == ""


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/quick-start.md"])
def test_a_release_is_refused_while_a_page_says_not_published_yet(tree: Path, page: str) -> None:
    (tree / page).parent.mkdir(parents=True, exist_ok=True)
    (tree / page).write_text("# A page\n\nNot published yet: in a clone, …\n")
    commit(tree)
    assert "error: README.md or docs say 'Not published yet': remove these lines" in release(tree, "true").stderr
    assert git(tree, "tag") == ""


def test_a_release_requires_a_repository_url(tree: Path) -> None:
    (tree / "pyproject.toml").write_text('[project.urls]\nRepository = "https://example.org/refresher"\n')
    commit(tree)
    assert "error: pyproject.toml names no repository yet" in release(tree, "true").stderr
    assert git(tree, "tag") == ""
