"""The documentation as a site: it builds without a warning, every link and every public name on it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import api_client
import refresher
from tests.support.requirements import skip_or_fail

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None:
        skip_or_fail("mkdocs is not installed: the extra docs has it")
    folder = tmp_path_factory.mktemp("site")
    options = ["--strict", "--config-file", ".mkdocs.yml", "--site-dir", str(folder)]
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *options],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    reference = (site / "reference" / "api.html").read_text(encoding="utf-8")
    names = [f"api_client.{name}" for name in api_client.__all__] + [f"refresher.{name}" for name in refresher.__all__]
    described = [name for name in names if not name.endswith("__version__")]
    assert [name for name in described if f'id="{name}"' not in reference] == []


def test_the_site_includes_linked_pages_from_outside_the_docs(site: Path) -> None:
    for page in ("index.html", "SECURITY.html", "deploy/index.html"):
        assert (site / "project" / page).is_file()
    assert (site / "project" / "deploy" / "prometheus" / "refresher.alerts.yml").is_file()


def test_pages_load_nothing_from_other_sites(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in site.rglob("*.html")]
    assert len(pages) > 20
    for kind in ('<script src="http', 'rel="stylesheet" href="http', '<img src="http'):
        assert not any(kind in page for page in pages)


def test_tables_have_their_pipes(site: Path) -> None:
    assert "list[int | float | bool | str | None]" in (site / "reference" / "values.html").read_text(encoding="utf-8")


def test_the_site_is_searched_without_a_server(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    assert '<script src="site/iframe-worker.js">' in (site / "index.html").read_text(encoding="utf-8")
