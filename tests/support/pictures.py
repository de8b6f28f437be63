"""Pictures of the user interfaces: taken by tests into test-artefacts/, with PICTURES=docs/pictures into the docs."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

ROOT: Final = Path(__file__).parents[2]
ARTEFACTS: Final = ROOT / "test-artefacts"
MAX_BYTES: Final = 150_000
_IN_BOTH_SCHEMES: Final = ("flower-broker", "flower-task", "flower-tasks", "status-page")
ON_PAGES: Final = frozenset({"demo.svg", *(f"{name}{dark}.png" for name in _IN_BOTH_SCHEMES for dark in ("", "-dark"))})
"""The pictures that the documentation shows."""


def are_for_the_docs() -> bool:
    """Return whether the pictures are taken for the documentation: then their scenes have their full length."""
    return bool(os.environ.get("PICTURES"))


def photograph(page: Page, name: str, **options: Any) -> None:
    """Save a browser's page as it is now, under ``name``.png; ``options`` are Playwright's."""
    keep(f"{name}.png", _small(page.screenshot(**options)))


def keep(name: str, content: bytes) -> None:
    """Save a picture under its file name; AssertionError if it is too large for the page that shows it."""
    assert name not in ON_PAGES or len(content) <= MAX_BYTES, f"{name}: {len(content)} bytes"
    for folder in _folders(name):
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def _folders(name: str) -> Iterator[Path]:
    yield ARTEFACTS
    if are_for_the_docs() and name in ON_PAGES:
        yield ROOT / os.environ["PICTURES"]


def _small(png: bytes) -> bytes:
    """Return a picture in its 256 most frequent colours: those of areas and lines stay the same."""
    picture = Image.open(BytesIO(png)).convert("RGB")
    counted: Any = sorted(picture.getcolors(picture.width * picture.height) or [], reverse=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in counted[:256] for part in colour])
    written = BytesIO()
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return written.getvalue()
