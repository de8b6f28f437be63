"""Code that runs in a forked child of the test."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def run_forked(act: Callable[[], object], *, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Run ``act`` in a forked child, and ``meanwhile`` here; fail with the child's traceback if ``act`` raises."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            act()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        meanwhile()
    finally:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, "what the child raised is on stderr"
