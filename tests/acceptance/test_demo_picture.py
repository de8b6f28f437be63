"""`refresher demo` on a terminal: its live table, and the picture of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from tests.acceptance.test_demo import ROOT, SMALL
from tests.servers.neo4j_server import SHORT_LIVED_ENV
from tests.support.pictures import are_for_the_docs, keep
from tests.support.waiting import MAX_WAIT_SECONDS

COLUMNS: Final = 100
ROWS: Final = 60
# The sequences by which rich erases a live frame before the next, and by which the cursor is shown and hidden.
_TAKEN_BACK: Final = re.compile(r"\r(?:\x1b\[2K)?(?:\x1b\[1A\x1b\[2K)*")
_CURSOR: Final = re.compile(r"\x1b\[\?25[lh]")
_UP: Final = "\x1b[1A"
_FROM_ELSEWHERE: Final = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)


def run_on_terminal(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float, interrupt_at: str
) -> tuple[int, str]:
    """Run a program on a terminal of its own, with a timeout; return its exit code and output.

    It is interrupted once it has printed ``interrupt_at``, a regular expression.
    """
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        argv,
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=folder,
        env={**env, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(its)
    deadline = time.monotonic() + seconds
    written, is_interrupted = bytearray(), False
    try:
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            assert time.monotonic() < deadline, written[-2_000:].decode(errors="replace")
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    written += os.read(ours, 65_536)
                except OSError:  # the other end is closed
                    break
            if not is_interrupted and re.search(interrupt_at.encode(), written):
                is_interrupted = True
                process.send_signal(signal.SIGINT)
        return process.wait(max(1.0, deadline - time.monotonic())), written.decode(errors="replace")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(ours)


def last_screen(written: str) -> str:
    """Return the final contents of the terminal, without erased frames."""
    lines, at = [""], 0
    text = _CURSOR.sub("", written.replace("\r\n", "\n"))
    for back in _TAKEN_BACK.finditer(text):
        _add(lines, text[at : back.start()])
        del lines[len(lines) - 1 - back[0].count(_UP) :]
        lines.append("")
        at = back.end()
    _add(lines, text[at:])
    return "\n".join(lines)


def _add(lines: list[str], text: str) -> None:
    first, *more = text.split("\n")
    lines[-1] += first
    lines += more


def as_svg(screen: str, title: str) -> bytes:
    """Return a self-contained picture of a screen."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(screen.strip("\n")), soft_wrap=True)
    return _FROM_ELSEWHERE.sub("", console.export_svg(title=title, unique_id="terminal")).encode()


def test_the_demo_goes_on_until_ctrl_c_and_leaves_its_last_screen_and_a_summary(tmp_path: Path) -> None:
    options = ["--seconds", "20"] if are_for_the_docs() else ["--seconds", "4", "--keep", "--no-chaos"]
    code, written = run_on_terminal(
        [sys.executable, "-m", "refresher.cli", "demo", *SMALL, "--readers", "1", *options],
        ROOT, {**os.environ, **SHORT_LIVED_ENV, "TMPDIR": str(tmp_path)}, 2 * MAX_WAIT_SECONDS,
        interrupt_at=r" ([6-9]|\d\d+)\.\d s until Ctrl-C",
    )  # fmt: skip
    assert code == 0, written
    screen = last_screen(written)
    assert screen.count("READS") == screen.count("graph loaded") == 1  # the last form of each alone
    said = " ".join(screen.split())  # lines may be broken anywhere
    assert said.index("servers started") < said.index("READS") < said.index("from 1 process; none failed")
    assert ("SIGKILL" in said) is are_for_the_docs()
    assert "Traceback" not in screen
    picture = as_svg(re.sub(r"password \S+", "password …", screen), "refresher demo --persons 100")
    assert b"://" not in picture.replace(b"http://www.w3.org/", b"").replace(b"http://127.0.0.1", b"")
    keep("demo.svg", picture)
