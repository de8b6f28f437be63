"""A reader that reads one key until it is killed: ``python -m tests.support.long_running_reader QUERY KEY``."""

from __future__ import annotations

import sys
import threading

from api_client import CacheClient

PAUSE_SECONDS = 0.02


def main() -> None:
    """Read forever."""
    pause = threading.Event()
    with CacheClient.from_env() as client:
        while not pause.wait(PAUSE_SECONDS):
            client.get(sys.argv[1], {"key": sys.argv[2]}, default=None)


if __name__ == "__main__":
    main()
