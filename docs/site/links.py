"""mkdocs hook that adds the files outside docs/ that pages link to, so that every link works on the site.

A file of the project outside docs/ has its place under ``project/`` there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
ABOUT: Final = (
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "deploy/README.md",
    "deploy/helm/refresher/README.md",
)
_CELL: Final = re.compile(r"<td>.*?</td>", re.DOTALL)
_LINK: Final = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages lead to."""
    pages = {f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md") and file.inclusion.is_included()}
    for page in sorted({*pages, *ABOUT}):
        linked = {page, *_linked(page)}
        for path in linked:
            uri = _on_site(path)
            if (ROOT / path).is_file() and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite a page's links to their places on the site."""
    here = _in_project(page.file.src_uri)

    def rewritten(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), link[2]))
        if (ROOT / path).is_dir():
            path = posixpath.join(path, "README.md")
        if not (ROOT / path).is_file():
            return link[0]
        uri = posixpath.relpath(_on_site(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"{link[1]}{uri}{link[3] or ''})"

    return _LINK.sub(rewritten, markdown)


def on_page_content(html: str, **_: Any) -> str:
    r"""Remove the backslash of ``\|`` in a table: Markdown requires it in code, Python's renderer keeps it."""
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)


def _linked(page: str) -> list[str]:
    targets = (link[1] for link in _LINK.findall((ROOT / page).read_text(encoding="utf-8")))
    return [posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) for target in targets]


def _on_site(path: str) -> str:
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"


def _in_project(uri: str) -> str:
    return uri.removeprefix("project/") if uri.startswith("project/") else f"docs/{uri}"
