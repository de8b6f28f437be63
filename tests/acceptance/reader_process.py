"""A reader process for acceptance tests: ``python -m tests.acceptance.reader_process THREADS QUERY PARAMS``.

Its threads read one key at once when a line comes on stdin; it prints one JSON line: how often each answer was seen
(state, refresh state and load, or the error).
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from api_client import CacheClient, CacheError


def main() -> None:
    """Read when told to, report, end."""
    threads, query, params = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    with CacheClient.from_env() as client:
        # Connections come up before the start, as in a process that has been serving for a while.
        client.get_entry(query, params)
        barrier = threading.Barrier(threads + 1)

        def read() -> Any:
            barrier.wait(60)
            try:
                entry = client.get_entry(query, params)
            except CacheError as error:
                return repr(error)
            return entry.state.value, entry.refresh.value, entry.value["load"]

        with ThreadPoolExecutor(threads) as pool:
            reads = [pool.submit(read) for _ in range(threads)]
            print("ready", flush=True)  # noqa: T201
            sys.stdin.readline()
            barrier.wait(60)
            answers = [done.result() for done in reads]
        client.flush()
    print(json.dumps(Counter(map(str, answers))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
