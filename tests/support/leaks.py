"""Detection of threads and connections that a closed reader has left in its process."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Collection

import psutil

from tests.support.waiting import eventually


class Leftovers:
    """Finds threads and connections that were not there when it was created."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def check(self, ports: Collection[int]) -> None:
        """Assert that no thread is left, no connection to ``ports``, and none for the garbage collector to close."""
        eventually(lambda: not self._found(ports), f"nothing is left: {self._found(ports)}")
        gc.collect()  # an unclosed socket is a ResourceWarning, which is an error

    def _found(self, ports: Collection[int]) -> list[str]:
        threads = [thread.name for thread in threading.enumerate() if thread not in self._before]
        open_now = psutil.Process(os.getpid()).net_connections("tcp")
        return threads + [
            f"connection to port {one.raddr.port} ({one.status})"
            for one in open_now
            if one.raddr and one.raddr.port in ports and one.status != psutil.CONN_TIME_WAIT
        ]
