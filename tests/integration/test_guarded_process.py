from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from refresher.embedded import GuardedProcess, ServerDidNotStart
from tests.support.killable_parent import FAMILY, family_of
from tests.support.processes import is_gone
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAUSE = "import signal; signal.pause()"
COUNT_DESCRIPTORS = f"""
import contextlib, pathlib, psutil, sys
from refresher.embedded import GuardedProcess, ServerDidNotStart

def start(*argv):
    return GuardedProcess.start(argv, log_file=pathlib.Path(sys.argv[1], "log"))

print(psutil.Process().num_fds())
for _ in range(3):
    with start(sys.executable, "-c", {PAUSE!r}):
        pass
    with contextlib.suppress(ServerDidNotStart):
        start(sys.argv[1] + "/nothing")
print(psutil.Process().num_fds())
"""


@pytest.fixture
def run_python(tmp_path: Path) -> Iterator[Callable[[str], GuardedProcess]]:
    started: list[GuardedProcess] = []

    def run(source: str) -> GuardedProcess:
        log_file = tmp_path / f"{len(started)}.log"
        started.append(GuardedProcess.start([sys.executable, "-c", source], log_file=log_file))
        return started[-1]

    yield run
    for process in started:
        process.kill()


@pytest.fixture
def parent_and_family(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A parent that has started a server and a family: its report, and its process."""
    arguments = getattr(request, "param", [])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.killable_parent", *arguments],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        said = json.loads(parent.stdout.readline())
        yield {**said, "parent": parent}
        parent.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_all_processes_and_data_are_removed_when_the_parent_ends(
    parent_and_family: dict[str, Any], number: signal.Signals
) -> None:
    parent_and_family["parent"].send_signal(number)
    for pid in [parent_and_family["server"], *parent_and_family["family"]]:
        eventually(lambda pid=pid: is_gone(pid), f"the end of process {pid}")  # type: ignore[misc]
    eventually(lambda: not Path(parent_and_family["directory"]).exists(), "the removal of the data")


@pytest.mark.parametrize("parent_and_family", [["fork"]], indirect=True)
def test_a_fork_of_the_parent_keeps_nothing_alive(parent_and_family: dict[str, Any]) -> None:
    parent_and_family["parent"].kill()
    for pid in [parent_and_family["server"], *parent_and_family["family"]]:
        eventually(lambda pid=pid: is_gone(pid), f"the end of process {pid}")  # type: ignore[misc]
    assert not is_gone(parent_and_family["fork"])
    os.kill(parent_and_family["fork"], signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a child at its parent's death")
def test_the_program_ends_with_its_guardian(run_python: Callable[[str], GuardedProcess]) -> None:
    process = run_python(PAUSE)
    psutil.Process(psutil.Process(process.pid).ppid()).kill()
    eventually(lambda: is_gone(process.pid), "the end of the program")
    assert process.wait(MAX_WAIT_SECONDS) == -signal.SIGKILL


def test_a_terminated_guardian_ends_its_program(run_python: Callable[[str], GuardedProcess]) -> None:
    process = run_python(PAUSE)
    psutil.Process(psutil.Process(process.pid).ppid()).terminate()
    assert process.wait(MAX_WAIT_SECONDS) == -signal.SIGTERM


def test_kill_ends_the_whole_family(run_python: Callable[[str], GuardedProcess]) -> None:
    process = run_python(FAMILY)
    family = family_of(process)
    assert process.kill() == -signal.SIGKILL
    assert all(map(is_gone, family))


def test_children_that_outlive_a_killed_program_are_ended_too(run_python: Callable[[str], GuardedProcess]) -> None:
    process = run_python(FAMILY)
    family = family_of(process)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(MAX_WAIT_SECONDS) == -signal.SIGKILL
    assert all(map(is_gone, family))


@pytest.mark.alone
def test_terminate_kills_a_program_that_outlasts_its_time_limit(run_python: Callable[[str], GuardedProcess]) -> None:
    process = run_python(FAMILY)
    family = family_of(process)
    with Measured() as took:
        assert process.terminate(within_seconds=0.3) == -signal.SIGKILL
    assert took.seconds >= 0.3
    took.at_most(0.3)
    assert all(map(is_gone, family))


def test_terminate_returns_the_program_s_own_exit_code(run_python: Callable[[str], GuardedProcess]) -> None:
    process = run_python(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('up', flush=True)\n"
        "signal.pause()\n"
    )
    eventually(lambda: "up" in process.tail_of_log(), "the program's start")
    assert process.returncode is None
    assert process.terminate() == 7
    assert process.terminate() == 7  # and may be repeated
    assert process.kill() == 7


def test_waiting_in_one_thread_does_not_block_a_kill_from_another(
    run_python: Callable[[str], GuardedProcess],
) -> None:
    process = run_python(PAUSE)
    seen: list[int | None] = []
    waiter = threading.Thread(target=lambda: seen.append(process.wait(MAX_WAIT_SECONDS)))
    waiter.start()
    assert process.wait(0.05) is None
    assert process.kill() == -signal.SIGKILL
    waiter.join(MAX_WAIT_SECONDS)
    assert seen == [-signal.SIGKILL]


def test_kill_bypasses_a_guardian_that_does_not_respond(
    run_python: Callable[[str], GuardedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refresher.embedded.process.GUARDIAN_MARGIN_SECONDS", 0.3)
    process = run_python(PAUSE)
    psutil.Process(psutil.Process(process.pid).ppid()).suspend()
    assert process.kill() == -signal.SIGKILL
    eventually(lambda: is_gone(process.pid), "the end of the program")


def test_a_program_has_its_environment_directory_and_private_log(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    source = "import os; print(os.environ['WORD'], os.getcwd()); raise SystemExit(3)"
    process = GuardedProcess.start(
        [sys.executable, "-c", source], log_file=log_file, env={**os.environ, "WORD": "hello"}, cwd=tmp_path
    )
    assert process.wait(MAX_WAIT_SECONDS) == 3
    assert process.tail_of_log() == f"hello {tmp_path}"
    assert log_file.stat().st_mode & 0o077 == 0


def test_the_tail_of_a_long_log_has_only_its_last_lines(run_python: Callable[[str], GuardedProcess]) -> None:
    process = run_python("for i in range(100_000): print('line', i)")
    assert process.wait(MAX_WAIT_SECONDS) == 0
    assert process.tail_of_log(lines=2) == "line 99998\nline 99999"


def test_starting_a_missing_program_raises_server_did_not_start(tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart, match="No such file or directory"):
        GuardedProcess.start([str(tmp_path / "nothing")], log_file=tmp_path / "log")


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """In a process of its own: in this one, what other tests have left to the collector closes at any time."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT_DESCRIPTORS, str(tmp_path)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
    )  # fmt: skip
    before, after = map(int, done.stdout.split())
    assert after == before


def test_the_program_inherits_none_of_the_guardians_pipes(run_python: Callable[[str], GuardedProcess]) -> None:
    process = run_python("import os; print(sorted(os.listdir('/dev/fd'))[:4])")
    assert process.wait(MAX_WAIT_SECONDS) == 0
    assert process.tail_of_log() in {"['0', '1', '2']", "['0', '1', '2', '3']"}  # 3: the listing itself
