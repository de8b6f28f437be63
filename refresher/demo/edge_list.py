"""Reads one's own graph: an edge list, as public graph collections (SNAP, Network Repository) ship them.

A text file in UTF-8, plain or gzip (told by its first bytes, not by its name), one edge a line:

- two columns, separated by a tab, a comma (quotes as in CSV) or spaces; the first row decides which, for the whole
  file. Further columns (a weight, a time) are ignored.
- an id is a number or a name such as a package's: 1 to 200 printable characters, spaces around it dropped.
- lines beginning with ``#`` or ``%`` are comments, and empty lines are skipped.
- the first row may be a header. Unless ``header`` says so, it is taken for one when both its columns are usual column
  names ("source,target", "FromNodeId ToNodeId"), or when neither is a number while both of the next row are.
- a Matrix Market file (``%%MatrixMarket matrix coordinate …``) has its line of sizes skipped.

The file is streamed: one line is in memory at a time, and a line is at most 64 KiB.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, cast

from refresher.demo.errors import EdgeListError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_ID_CHARACTERS: Final = 200
MAX_LINE_BYTES: Final = 64 * 1024
MAX_EDGES: Final = 5_000_000
"""Rows of one file. As many, among 1.5 million names, take 0.75 GB of memory and 23 s to read (measured)."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_MATRIX_MARKET = "%%matrixmarket"
_DELIMITERS = {"\t": "tabs", ",": "commas", None: "spaces"}
_ALLOWED = "each line must be two ids separated by a tab, a comma or spaces"
_COLUMN_NAMES = """
    source target src dst from to start end head tail u v a b x y node1 node2 node_1 node_2 id1 id2 id_1 id_2
    fromnodeid tonodeid from_node_id to_node_id source_id target_id from_id to_id parent child
    package dependency depends_on depends dependant dependent person friend follower followee
"""


@dataclass(frozen=True, slots=True)
class _Row:
    """The two ids of one line, and where it stood (counted from 1)."""

    line_number: int
    source: str
    target: str


def read_edge_list(path: Path, *, header: bool | None = None, max_edges: int = MAX_EDGES) -> Iterator[tuple[str, str]]:
    """Yield the edges (source id, target id) in the file's order, self loops and duplicates included.

    ``header`` True or False says whether the first row is a header; None finds out (see above). Errors come when the
    iteration meets them.

    Raises:
        EdgeListError: the file is missing, not a regular file, not readable, empty, not UTF-8, broken gzip, has a
            line that is no edge, or more than ``max_edges`` of them. The message names the file, the line and what
            is allowed.
    """
    edges = 0
    with _opened(path) as stream:
        for row in _without_header(_rows(path, stream), header=header):
            edges += 1
            if edges > max_edges:
                raise EdgeListError(path, f"more than {max_edges:,} edges, which is the limit", row.line_number)
            yield row.source, row.target
    if edges == 0:
        raise EdgeListError(path, f"no edge found: {_ALLOWED}")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open the file, through gzip when its first bytes say so. Errors of reading inside become EdgeListError too."""
    try:
        if path.exists() and not path.is_file():
            raise EdgeListError(path, f"is {'a directory' if path.is_dir() else 'no regular file'}: name a text file")
        with path.open("rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            if magic == _ZIP_MAGIC:
                raise EdgeListError(path, "is a zip archive: unpack it, and name the edge list inside (gzip is fine)")
            if magic.startswith(_GZIP_MAGIC):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield cast("IO[bytes]", unpacked)
                return
            if path.suffix == ".gz" and magic:
                raise EdgeListError(path, "is named .gz, but holds no gzip data: rename it, or compress it with gzip")
            yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise EdgeListError(path, f"broken gzip data ({error}): download or compress it again") from error
    except FileNotFoundError as error:
        raise EdgeListError(path, "no such file") from error
    except OSError as error:
        raise EdgeListError(path, f"can't be read: {error.strerror or error}") from error


def _lines(path: Path, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its end), bounded in length and decoded."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise EdgeListError(path, f"longer than {MAX_LINE_BYTES:,} bytes: {_ALLOWED}", number)
        try:
            # A byte order mark is what spreadsheets put before the first cell; it is no part of an id.
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise EdgeListError(
                path, f"not UTF-8 (byte {error.start + 1} of the line): convert the file to UTF-8", number
            ) from error


def _rows(path: Path, stream: IO[bytes]) -> Iterator[_Row]:
    """Yield the rows, comments and a Matrix Market line of sizes skipped; a header is still among them."""
    sizes_follow = False
    delimiter: str | None = None
    first = True
    for number, line in _lines(path, stream):
        text = line.lstrip()
        if text.startswith(("#", "%")) or not text:
            sizes_follow = sizes_follow or (number == 1 and text.lower().startswith(_MATRIX_MARKET))
            continue
        if sizes_follow:
            sizes_follow = False
            continue
        if first:
            delimiter, first = _delimiter_of(line), False
        yield _parsed(path, number, line, delimiter)


def _delimiter_of(line: str) -> str | None:
    """Return the delimiter of a row: a tab wins over a comma, since names with commas ship as TSV; None is spaces."""
    return next((delimiter for delimiter in ("\t", ",") if delimiter in line), None)


def _parsed(path: Path, number: int, line: str, delimiter: str | None) -> _Row:
    """Split one line and check its ids."""
    try:
        quoted = delimiter == "," and '"' in line
        cells = next(csv.reader([line], strict=True)) if quoted else line.split(delimiter)
    except csv.Error as error:
        raise EdgeListError(path, f"broken CSV ({error}): a quote must be closed on its own line", number) from error
    if len(cells) < 2:
        raise EdgeListError(path, f"one column only: {_ALLOWED}, here {_DELIMITERS[delimiter]}", number)
    source, target = cells[0].strip(), cells[1].strip()
    for column, value in ((1, source), (2, target)):
        problem = _problem_with(value)
        if problem:
            raise EdgeListError(path, f"column {column}: {problem}", number)
    return _Row(number, source, target)


def _problem_with(value: str) -> str | None:
    """Say what is wrong with an id and what is allowed, or None."""
    if not value:
        return "empty id: an id is a number or a name"
    if len(value) > MAX_ID_CHARACTERS:
        return f"an id of {len(value):,} characters: at most {MAX_ID_CHARACTERS} are allowed"
    if not value.isprintable():
        return f"unprintable character in the id {value[:40]!a}: an id is a number or a name in plain text"
    return None


def _without_header(rows: Iterator[_Row], *, header: bool | None) -> Iterator[_Row]:
    """Drop the first row if it is a header."""
    first = next(rows, None)
    if first is None:
        return
    second = next(rows, None)
    if header is None:
        header = _looks_like_a_header(first, second)
    if not header:
        yield first
    if second is not None:
        yield second
    yield from rows


def _looks_like_a_header(first: _Row, second: _Row | None) -> bool:
    if {first.source.lower(), first.target.lower()} <= set(_COLUMN_NAMES.split()) and second is not None:
        return True
    return (
        second is not None
        and not (_is_number(first.source) or _is_number(first.target))
        and _is_number(second.source)
        and _is_number(second.target)
    )


def _is_number(value: str) -> bool:
    return value.removeprefix("-").isdecimal()
