"""Code on the pages of the documentation, for tests that run it unchanged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(r"(?:[Ss]ave this as `(?P<file>[\w.]+)`:\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)
"""A block of code, and the file named in the line before it."""


def blocks_of(page: str) -> list[re.Match[str]]:
    """Return the blocks of a page, given by its path in the project; see `BLOCK`."""
    return list(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")))


def examples_of(page: str) -> list[str]:
    """Return the text of each Python block."""
    return [block["text"] for block in blocks_of(page) if block["kind"] == "python"]
