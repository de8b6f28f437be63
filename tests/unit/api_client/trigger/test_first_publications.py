"""Two publishers that import kombu for the first time at once."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import MAX_WAIT_SECONDS

SCRIPT = """
import sys
import threading
import time

from api_client.config.broker import queue_for
from tests.support.waiting import MAX_WAIT_SECONDS

reached, go_on = threading.Event(), threading.Event()

def hold(frame, event, _):
    # In the middle of kombu's own module, which replaces itself by another one at its end.
    if frame.f_code.co_filename.endswith("kombu/__init__.py") and frame.f_code.co_name == "<module>":
        if frame.f_lineno > 40 and not reached.is_set():
            reached.set()
            go_on.wait(MAX_WAIT_SECONDS)
        return hold
    return hold if event == "call" else None

def first():
    sys.settrace(hold)
    queue_for("ns", "redis://127.0.0.1/1", has_waiter=True)

made = []
one = threading.Thread(target=first)
one.start()
assert reached.wait(MAX_WAIT_SECONDS)
two = threading.Thread(target=lambda: made.append(queue_for("ns", "redis://127.0.0.1/1", has_waiter=True)))
two.start()
while two.is_alive() and "_bootstrap" not in sys._current_frames()[two.ident].f_code.co_filename:
    time.sleep(0.001)
go_on.set()
one.join()
two.join()
print(len(made))
"""


def test_two_threads_that_import_kombu_first_both_get_their_queue() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
