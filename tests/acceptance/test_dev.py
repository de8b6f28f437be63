"""`refresher dev` as a developer uses it: started, read from another process, its file edited, ended."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.processes import addresses_beyond_loopback, is_gone, shown_in_process_list
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

ROOT = Path(__file__).parents[2]
READY = "Ctrl-C stops everything"
MODULE = """
from refresher import query


@query("friends_of", ttl="5m", grace="1h")
def friends_of(tx, person_id: int) -> list[str]:
    return tx.run("MATCH (:Person {id: $id})--(f) RETURN f.name ORDER BY f.name", id=person_id).value()
"""
READ = 'from api_client import get_cached; print(get_cached("friends_of", {"person_id": 42}, timeout="60s"))'


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Dev:
    """A running `refresher dev`: what it printed so far, and all processes that it ever had."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self.temporary = folder / "app", folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self._out, self.pids = folder / "out.txt", set[int]()
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "refresher.cli", "dev", *arguments],
                stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)},
            )  # fmt: skip

    def processes(self) -> list[psutil.Process]:
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self.pids |= {process.pid for process in found}
        return found

    @property
    def out(self) -> str:
        return self._out.read_text()

    def wait_for(self, words: str, times: int = 1) -> None:
        def printed() -> bool:
            self.processes()
            assert self.process.poll() is None or self.out.count(words) >= times, self.out
            return self.out.count(words) >= times

        eventually(printed, f"it prints {words!r}")

    def read(self) -> str:
        """What a reader in another terminal gets."""
        done = subprocess.run(
            ["/bin/sh", "-c", f". .refresher-dev/env && exec {shlex.quote(sys.executable)} -c {shlex.quote(READ)}"],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            timeout=MAX_WAIT_SECONDS, check=False,
        )  # fmt: skip
        return done.stdout.strip() or done.stderr

    def edit(self, change: Callable[[str], str]) -> None:
        path = self.folder / "my_queries.py"
        path.write_text(change(path.read_text()))

    def end_by(self, number: signal.Signals) -> int:
        """Send a signal; return its exit code, when all that it ever started is gone too."""
        self.processes()
        self.process.send_signal(number)
        code = self.process.wait(MAX_WAIT_SECONDS)
        eventually(lambda: all(map(is_gone, self.pids)), f"all of {self.pids} are gone")
        eventually(lambda: not list(self.temporary.iterdir()), "no temporary file is left")
        eventually(lambda: names_in(self.folder) == ["my_queries.py"], "nothing is left beside the module")
        return code


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "my_queries.py").write_text(MODULE)
    running: list[Dev] = []

    def start(*arguments: str) -> Dev:
        running.append(Dev(tmp_path, *arguments))
        return running[-1]

    yield start
    for dev in running:
        dev.process.kill()
        dev.process.wait(MAX_WAIT_SECONDS)


@pytest.mark.smoke
@pytest.mark.timeout(4 * MAX_WAIT_SECONDS)
def test_a_value_follows_an_edit_of_its_query_and_ctrl_c_leaves_nothing(started: Callable[..., Dev]) -> None:
    dev = started("my_queries", "--sample")
    dev.wait_for(READY)
    assert "queries: friends_of" in dev.out
    assert dev.read() == "['Ada', 'Grace']"
    urls = [process.environ().get("CACHE_REDIS_URL", "") for process in dev.processes()]
    passwords = {urlsplit(url).password for url in urls} - {None}
    assert len(passwords) == 1
    assert [shown_in_process_list(str(password)) for password in passwords] == [[]]
    assert [address for process in dev.processes() for address in addresses_beyond_loopback(process.pid)] == []

    dev.edit(lambda text: text.replace("ORDER BY f.name", "ORDER BY f.name DESC"))
    dev.wait_for("\nready\n")
    assert dev.read() == "['Grace', 'Ada']", "without waiting for the TTL"

    dev.edit(lambda text: text + "(")
    dev.wait_for("the worker has ended; it is started again when a file changes")
    assert "SyntaxError" in dev.out
    dev.edit(lambda text: text.removesuffix("("))
    dev.wait_for("\nready\n", times=2)
    assert dev.read() == "['Grace', 'Ada']"
    assert dev.end_by(signal.SIGINT) == 0
    assert dev.out.endswith("stopped; everything was removed\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_leaves_nothing_however_it_ends(started: Callable[..., Dev], number: signal.Signals) -> None:
    dev = started("my_queries")
    dev.wait_for(READY)
    assert dev.end_by(number) == {signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}[number]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "error: name the module that uses @query: refresher dev my_queries"),
        (("my_queries.py",), "error: 'my_queries.py' is not a module's name: refresher dev my_queries"),
        (("./my_queries.py",), "error: './my_queries.py' is not a module's name: refresher dev my_queries"),
        (("not_there",), "error: there is no module not_there in "),
        (("broken",), "error: REFRESHER_QUERIES='broken' is not valid: importing it failed with SyntaxError"),
    ],
)
def test_what_cannot_be_imported_is_named_before_anything_starts(
    started: Callable[..., Dev], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "app" / "broken.py").write_text("(")
    dev = started(*arguments)
    assert dev.process.wait(MAX_WAIT_SECONDS) == 1
    assert dev.out.startswith(said)
    assert names_in(dev.folder) == ["broken.py", "my_queries.py"]
