"""Edge list: CSV of two columns, by commas or tabs, optionally gzipped (.gz).

No header; lines that begin with ``#`` and empty lines are skipped, as are further columns. An id is 1 to 200 printable
characters.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from refresher.demo.errors import DemoError

MAX_ID_CHARACTERS: Final = 200
MAX_EDGES: Final = 5_000_000
"""Rows of one file. As many, among 1.5 million names, take 0.75 GB of memory and 23 s to read (measured)."""


def read_edge_list(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the edges (source id, target id) in the file's order, self loops and duplicates included.

    Raises:
        DemoError: the file can't be read, has a line that is not an edge, or more than `MAX_EDGES` of them; while
            the iteration runs. The message names the file, the line and what is allowed.
    """
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip() and not line.startswith("#"):
                    yield _edge(path, number, line)
                if number > MAX_EDGES:
                    raise DemoError(f"{path}: more than {MAX_EDGES:,} lines, which is the limit")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DemoError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error


def _edge(path: Path, number: int, line: str) -> tuple[str, str]:
    try:
        ids = [cell.strip() for cell in next(csv.reader([line], delimiter="\t" if "\t" in line else ",", strict=True))]
    except csv.Error as error:
        raise DemoError(f"{path}, line {number}: broken CSV ({error})") from error
    if len(ids) < 2 or not all(value.isprintable() and 1 <= len(value) <= MAX_ID_CHARACTERS for value in ids[:2]):
        allowed = f"two ids of 1 to {MAX_ID_CHARACTERS} printable characters, separated by a comma or a tab"
        raise DemoError(f"{path}, line {number}: {line.strip()[:40]!a}: expected {allowed}")
    return ids[0], ids[1]
