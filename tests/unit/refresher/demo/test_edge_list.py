"""Edge lists: those that the demo reads, and its errors for others."""

import gzip
from pathlib import Path

import pytest

from refresher.demo.errors import DemoError
from refresher.demo.graph import edge_list
from refresher.demo.graph.edge_list import MAX_ID_CHARACTERS, read_edge_list


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "edges.txt"


def edges(path: Path, content: bytes | str) -> list[tuple[str, str]]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_edge_list(path))


def problem(path: Path, content: bytes | str) -> DemoError:
    with pytest.raises(DemoError) as caught:
        edges(path, content)
    assert str(caught.value).startswith(str(path))
    return caught.value


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("1\t2\n2\t3\n", [("1", "2"), ("2", "3")]),
        ("1,2\n2,3", [("1", "2"), ("2", "3")]),
        ("1,2\r\n2,3\r\n", [("1", "2"), ("2", "3")]),
        ("flask\tclick, the\n", [("flask", "click, the")]),
        ('"a, b",c\n"say ""x""",d\n', [("a, b", "c"), ('say "x"', "d")]),
        ("1, 2 ,0.5\n", [("1", "2")]),
        ("# SNAP\n# FromNodeId\tToNodeId\n\n1\t2\n", [("1", "2")]),
        ("\ufeff1,2\n", [("1", "2")]),
        ("@scope/größe\tlibc6\n", [("@scope/größe", "libc6")]),
        ("1,1\n1,2\n1,2\n", [("1", "1"), ("1", "2"), ("1", "2")]),
        ("", []),
    ],
)
def test_commas_and_tabs_are_read(path: Path, content: str, expected: list[tuple[str, str]]) -> None:
    assert edges(path, content) == expected


def test_gzip_is_read(tmp_path: Path) -> None:
    assert edges(tmp_path / "edges.tsv.gz", gzip.compress(b"1\t2\n")) == [("1", "2")]


@pytest.mark.parametrize(
    ("content", "line_number", "words"),
    [
        ("1\t2\n3\n", 2, "'3': expected two ids of 1 to 200 printable characters, separated by a comma or a tab"),
        ("1,2\n3 4\n", 2, "expected two ids"),
        ("# c\n1,2\n,4\n", 3, "expected two ids"),
        ("1,2\n3,\n", 2, "expected two ids"),
        ('1,2\n"3,4\n', 2, "broken CSV"),
        ("1,2\n3,\x004\n", 2, "'3,\\x004': expected two ids"),
        (f"1,2\n3,{'x' * (MAX_ID_CHARACTERS + 1)}\n", 2, "expected two ids"),
        (f"1,2\n3,{'x' * 200_000}\n", 2, "broken CSV"),
    ],
)
def test_a_bad_line_is_named(path: Path, content: str, line_number: int, words: str) -> None:
    error = str(problem(path, content))
    assert error.startswith(f"{path}, line {line_number}: ")
    assert words in error


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("edges.txt", b"1,2\nM\xfcller,3\n"),
        ("edges.gz", b"1,2\n"),
        ("edges.gz", gzip.compress(b"1,2\n" * 1000, mtime=0)[:-12]),  # cut off
        ("edges.gz", gzip.compress(b"1,2\n" * 1000, mtime=0)[:-8] + b"\0" * 8),  # wrong checksum
        ("edges.gz", gzip.compress(b"1,2\n", mtime=0)[:10] + b"\xff" * 20),  # no deflate data
    ],
    ids=["not UTF-8", "not gzip", "cut off", "checksum", "no deflate data"],
)
def test_a_file_that_can_t_be_decoded_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    assert "can't be read: " in str(problem(tmp_path / name, content))


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "edges.txt", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(DemoError, match=why):
            list(read_edge_list(path))


def test_more_lines_than_allowed_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_list, "MAX_EDGES", 2)
    assert edges(path, "1,2\n2,3\n") == [("1", "2"), ("2", "3")]
    assert "more than 2 lines, which is the limit" in str(problem(path, "1,2\n2,3\n3,4\n"))
