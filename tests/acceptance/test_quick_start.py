"""Quick start and feed tutorial as typed: an empty folder, an empty home, the built wheel in a new environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from refresher.embedded import free_port
from refresher.ops.http import get
from tests.servers.neo4j_server import SHORT_LIVED_ENV
from tests.support.distribution import version_of
from tests.support.installations import ROOT, WHAT_BUILDS, built, copied
from tests.support.pages import blocks_of
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

ACTIVATION: Final = ". .venv/bin/activate\n"
STAY: Final = ("refresher dev", "celery -A refresher flower")
"""Commands that stay in the foreground."""
INSTALL_SECONDS: Final = 10 * MAX_WAIT_SECONDS


class Desk:
    """Terminals in one folder. A block that begins by activating the environment is typed in a new one."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self._prepared: list[str] = []
        """What was sourced in the terminal where the next block is typed."""
        self._staying: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.shown = ""

    def type(self, block: str) -> None:
        """Type a block, and wait until it has ended; start it, where it ends with a command that stays."""
        prepared = [] if block.startswith(ACTIVATION) else self._prepared
        script = "\n".join(["set -e", *prepared, block])
        if block.splitlines()[-1].startswith(STAY):
            out = self.folder.with_name(f"terminal-{len(self._staying)}.txt")
            with out.open("wb") as file:
                running = subprocess.Popen(
                    ["/bin/sh", "-c", script], cwd=self.folder, env=self.environ, stdout=file, stderr=file,
                    start_new_session=True,
                )  # fmt: skip
            self._staying.append((running, out))
            return
        done = subprocess.run(
            ["/bin/sh", "-c", script], cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        self.shown = done.stdout
        self._prepared = [*prepared, *(line for line in block.splitlines() if line.startswith(". "))]

    def shows(self, expected: str) -> None:
        """Check what the last block printed; … stands for anything."""
        lines = "".join(".*" if line == "…\n" else re.escape(line) for line in expected.splitlines(keepends=True))
        pattern = re.compile(lines.replace("…", "[^\n]*"), re.DOTALL)
        if self.shown:
            assert pattern.search(self.shown), f"{self.shown}\nis not\n{expected}"
            return
        running, out = self._staying[-1]
        eventually(
            lambda: pattern.search(out.read_text()) or running.poll() is not None, f"the terminal shows {expected}"
        )
        assert pattern.search(out.read_text()), out.read_text()

    def leave(self) -> None:
        """Press Ctrl-C in each terminal where something stays, the last first."""
        while self._staying:
            running, out = self._staying.pop()
            os.killpg(running.pid, signal.SIGINT)
            assert running.wait(MAX_WAIT_SECONDS) in {0, -signal.SIGINT, 130}, out.read_text()

    def close(self) -> None:
        """Leave nothing behind, also where something went wrong."""
        for running, _ in self._staying:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait(MAX_WAIT_SECONDS)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    dist = tmp_path / "dist"
    built(copied(ROOT, WHAT_BUILDS, tmp_path / "tree"), dist, "wheel")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(f"refresher=={version_of(ROOT)}\n{(ROOT / 'constraints.txt').read_text()}")
    programs, home, folder = (tmp_path / name for name in ("programs", "home", "app"))
    for path in (programs, home, folder):
        path.mkdir()
    python = programs / "python3"
    python.write_text(f'#!/bin/sh\nexec "{Path(sys.base_prefix, "bin", "python3")}" "$@"\n')
    python.chmod(0o755)
    of_pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    desk = Desk(
        folder,
        of_pip
        | SHORT_LIVED_ENV
        | {
            "PATH": f"{programs}{os.pathsep}/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PIP_FIND_LINKS": f"{of_pip.get('PIP_FIND_LINKS', '')} {dist}".strip(),
            "PIP_CONSTRAINT": str(constraints),
            "PIP_CACHE_DIR": str(ROOT / ".cache" / "pip"),
            "FLOWER_PORT": str(free_port()),  # the page's own may be taken on this machine
        },
    )
    yield desk
    desk.close()


@pytest.mark.promise("Contract and operation", "Quick start and feed tutorial work as typed, from the wheel")
@pytest.mark.timeout(INSTALL_SECONDS + 6 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize(
    ("page", "files"),
    [
        ("quick-start", ["my_queries.py", "read.py", "test_friends.py", "write.py"]),
        pytest.param("change-feed", ["my_queries.py", "rename.py"], marks=[pytest.mark.neo4j, pytest.mark.long]),
    ],
)
def test_the_page_works_as_typed(page: str, files: list[str], desk: Desk) -> None:
    for block in blocks_of(f"docs/tutorial/{page}.md"):
        if block["kind"] == "python":
            assert block["file"], f"no file name is given for\n{block['text']}"
            (desk.folder / block["file"]).write_text(block["text"])
        elif block["kind"] == "sh":
            desk.shown = ""
            desk.type(block["text"])
        else:
            desk.shows(block["text"])
        if "flower" in block["text"].splitlines()[-1] and block["kind"] == "sh":
            check_flower(desk)
    desk.leave()
    made = {path.name for path in desk.folder.iterdir()} - {"__pycache__", ".pytest_cache"}
    assert sorted(made) == [".venv", *files]


def check_flower(desk: Desk) -> None:
    """Its page of tasks answers, and it has found the worker."""

    def page(path: str) -> str:
        try:
            status, body = get("127.0.0.1", int(desk.environ["FLOWER_PORT"]), path)
        except OSError:
            return ""
        return body.decode() if status == 200 else ""

    assert "tasks-table" in eventually(lambda: page("/tasks"), "Flower answers")
    eventually(lambda: "celery@" in page("/workers?json=1"), "Flower shows the worker")
