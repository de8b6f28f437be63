import gzip
from pathlib import Path

import pytest

from refresher.demo.edge_list import MAX_ID_CHARACTERS, MAX_LINE_BYTES, read_edge_list
from refresher.demo.errors import DemoError, EdgeListError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "edges.txt"


def edges(path: Path, content: bytes | str, *, header: bool | None = None) -> list[tuple[str, str]]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_edge_list(path, header=header))


def problem(path: Path, content: bytes | str) -> EdgeListError:
    with pytest.raises(EdgeListError) as caught:
        edges(path, content)
    assert str(caught.value).startswith(str(path))
    return caught.value


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("1\t2\n2\t3\n", [("1", "2"), ("2", "3")]),
        ("1,2\n2,3", [("1", "2"), ("2", "3")]),
        ("1 2\r\n  2   3  \r\n", [("1", "2"), ("2", "3")]),
        ("flask\tclick, the\n", [("flask", "click, the")]),
        ('"a, b",c\n"say ""x""",d\n', [("a, b", "c"), ('say "x"', "d")]),
        ("1, 2 ,0.5\n", [("1", "2")]),
        ("1 2 0.5 1290000\n", [("1", "2")]),
        ("# SNAP\n# FromNodeId\tToNodeId\n\n1\t2\n", [("1", "2")]),
        ("% asym\n1 2\n   # more\n3 4\n", [("1", "2"), ("3", "4")]),
        ("%%MatrixMarket matrix coordinate pattern symmetric\n% by\n4 4 2\n2 1\n4 3\n", [("2", "1"), ("4", "3")]),
        ("\ufeff1,2\n", [("1", "2")]),
        ("@scope/größe\tlibc6\n", [("@scope/größe", "libc6")]),
        ("1 1\n1 2\n1 2\n", [("1", "1"), ("1", "2"), ("1", "2")]),
    ],
)
def test_reads_what_collections_ship(path: Path, content: str, expected: list[tuple[str, str]]) -> None:
    assert edges(path, content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Source,Target\nflask,click\n", [("flask", "click")]),
        ("package\tdepends_on\nflask\tclick\n", [("flask", "click")]),
        ("who,whom\n1,2\n", [("1", "2")]),
        ("flask,click\nclick,colorama\n", [("flask", "click"), ("click", "colorama")]),
        ("from,to\n", [("from", "to")]),
        ("1,flask\n1,2\n", [("1", "flask"), ("1", "2")]),
    ],
)
def test_finds_a_header(path: Path, content: str, expected: list[tuple[str, str]]) -> None:
    assert edges(path, content) == expected


def test_a_header_may_be_told(path: Path) -> None:
    assert edges(path, "flask,click\nclick,colorama\n", header=True) == [("click", "colorama")]
    assert edges(path, "source,target\na,b\n", header=False) == [("source", "target"), ("a", "b")]


@pytest.mark.parametrize("name", ["edges.tsv.gz", "edges.tsv"])
def test_gzip_is_known_by_its_first_bytes(tmp_path: Path, name: str) -> None:
    assert edges(tmp_path / name, gzip.compress(b"1\t2\n")) == [("1", "2")]


@pytest.mark.parametrize(
    ("content", "line_number", "words"),
    [
        ("1\t2\n3\n", 2, "one column only: each line must be two ids separated by a tab, a comma or spaces, here tabs"),
        ("alone\n", 1, "one column only"),
        ("1,2\n3 4\n", 2, "here commas"),
        ("# c\n1,2\n,4\n", 3, "column 1: empty id"),
        ("1,2\n3,\n", 2, "column 2: empty id"),
        ('1,2\n"3,4\n', 2, "broken CSV"),
        (b"1 2\nM\xfcller 3\n", 2, "not UTF-8 (byte 2 of the line)"),
        ("1\t2\n".encode("utf-16"), 1, "not UTF-8"),
        ("1 2\n3 \x004\n", 2, "column 2: unprintable character in the id '\\x004'"),
        (f"1 2\n3 {'x' * (MAX_ID_CHARACTERS + 1)}\n", 2, "column 2: an id of 201 characters: at most 200 are allowed"),
        (f"1 2\n3 {'x' * MAX_LINE_BYTES}\n", 2, "longer than 65,536 bytes"),
        (f"1 2\n3 {'x' * MAX_LINE_BYTES}", 2, "longer than 65,536 bytes"),
    ],
)
def test_a_bad_line_is_named(path: Path, content: bytes | str, line_number: int, words: str) -> None:
    error = problem(path, content)
    assert error.line_number == line_number
    assert f", line {line_number}: " in str(error)
    assert words in str(error)


@pytest.mark.parametrize("content", ["", "\n\n", "# only\n% comments\n", gzip.compress(b"", mtime=0)])
def test_no_edge_at_all(path: Path, content: bytes | str) -> None:
    error = problem(path, content)
    assert error.line_number is None
    assert "no edge found" in str(error)


def test_a_line_at_the_limit_is_read(path: Path) -> None:
    line = "1 2 ".ljust(MAX_LINE_BYTES - 1, "x") + "\n"
    assert edges(path, line) == [("1", "2")]


def test_named_gz_but_no_gzip(tmp_path: Path) -> None:
    assert "holds no gzip data" in str(problem(tmp_path / "edges.gz", "1 2\n"))


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(b"1 2\n" * 1000, mtime=0)[:-12],  # cut off
        gzip.compress(b"1 2\n" * 1000, mtime=0)[:-8] + b"\0" * 8,  # wrong checksum
        gzip.compress(b"1 2\n", mtime=0)[:10] + b"\xff" * 20,  # no deflate data
        b"\x1f\x8b",
    ],
)
def test_broken_gzip(tmp_path: Path, content: bytes) -> None:
    assert "broken gzip data" in str(problem(tmp_path / "edges.gz", content))


def test_a_zip_archive_is_told_apart(path: Path) -> None:
    assert "is a zip archive: unpack it" in str(problem(path, b"PK\x03\x04rest"))


def test_a_missing_file(path: Path) -> None:
    with pytest.raises(EdgeListError, match=r"edges\.txt: no such file"):
        list(read_edge_list(path))


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(EdgeListError, match="is a directory: name a text file"):
        list(read_edge_list(tmp_path))


def test_a_file_under_a_file(path: Path) -> None:
    path.write_text("1 2\n")
    with pytest.raises(EdgeListError, match="can't be read: Not a directory"):
        list(read_edge_list(path / "more"))


def test_more_edges_than_allowed(path: Path) -> None:
    path.write_text("1 2\n2 3\n3 4\n")
    with pytest.raises(EdgeListError, match=r"line 3: more than 2 edges, which is the limit"):
        list(read_edge_list(path, max_edges=2))
    assert len(list(read_edge_list(path, max_edges=3))) == 3


def test_streams(path: Path) -> None:
    path.write_text("1 2\n2 3\n3\n")
    stream = read_edge_list(path)
    assert [next(stream), next(stream)] == [("1", "2"), ("2", "3")]
    with pytest.raises(EdgeListError, match="line 3"):
        next(stream)


def test_the_error_is_a_demo_error_and_a_value_error(path: Path) -> None:
    error = problem(path, "alone\n")
    assert isinstance(error, DemoError)
    assert isinstance(error, ValueError)
    assert error.path == path
