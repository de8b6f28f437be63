"""Programs that use the application without a server: ``python -m tests.acceptance.hosts.programs NAME``.

Each prints its reports, one line of JSON each.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import sys
import threading
from typing import Any

from tests.acceptance.hosts.application import Application, Report

CHILDREN = THREADS = LOOPS = 3

host = Application()


def print_report(report: Report) -> None:
    """Print a report, in one write: other processes print as well."""
    os.write(1, (json.dumps(report) + "\n").encode())


def in_child() -> None:
    """Use the application of the parent, where there is one."""
    print_report(host.use())
    print_report(host.close())


def processes(method: str) -> None:
    """Use the application, also in children that are started meanwhile."""
    # These are the host's own, and there before the library is used.
    if method == "forkserver":
        multiprocessing.forkserver.ensure_running()
    multiprocessing.resource_tracker.ensure_running()
    print_report(host.use())
    context: Any = multiprocessing.get_context(method)
    children = [context.Process(target=in_child) for _ in range(CHILDREN)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        if child.exitcode:
            sys.exit(f"a child ended with {child.exitcode}")
        child.close()
    print_report(host.use())
    print_report(host.close())


def threads() -> None:
    """Use the application in threads that end after it."""
    for _ in range(THREADS):
        several = [threading.Thread(target=host.use) for _ in range(THREADS)]
        for thread in several:
            thread.start()
        for thread in several:
            thread.join()
    print_report(host.use())
    print_report(host.close())


def loops() -> None:
    """Use the application on event loops, one after the other."""
    for _ in range(LOOPS):
        print_report(asyncio.run(host.ause()))
    print_report(asyncio.run(host.aclose()))


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    {"processes": processes, "threads": threads, "loops": loops}[program](*arguments)
