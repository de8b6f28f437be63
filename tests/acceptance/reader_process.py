"""A reader process for acceptance tests: ``python -m tests.acceptance.reader_process KIND CALLERS QUERY PARAMS``.

Its callers, which are ``threads`` or ``tasks``, read one key at once when a line comes on stdin. It prints one line of
JSON: how often each answer was seen (state, refresh state and load, or the error).
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from api_client import AsyncCacheClient, CacheClient, CacheError, Entry
from tests.support.patience import publish_patiently
from tests.support.waiting import MAX_WAIT_SECONDS


def main() -> None:
    """Read once a line comes on stdin, report, end."""
    publish_patiently()
    kind, callers, query, params = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    answers = asyncio.run(in_tasks(callers, query, params)) if kind == "tasks" else in_threads(callers, query, params)
    print(json.dumps(Counter(map(str, answers))), flush=True)  # noqa: T201


def in_threads(callers: int, query: str, params: Any) -> list[Any]:
    """Read in ``callers`` threads."""
    with CacheClient.from_env() as client:
        # Connections come up before the start, as in a process that has been serving for a while.
        client.get_entry(query, params)
        barrier = threading.Barrier(callers + 1)

        def read() -> Any:
            barrier.wait(MAX_WAIT_SECONDS)
            try:
                return counted(client.get_entry(query, params))
            except CacheError as error:
                return repr(error)

        with ThreadPoolExecutor(callers) as pool:
            reads = [pool.submit(read) for _ in range(callers)]
            wait_for_the_start()
            barrier.wait(MAX_WAIT_SECONDS)
            answers = [done.result() for done in reads]
        assert client.flush(MAX_WAIT_SECONDS)
    return answers


async def in_tasks(callers: int, query: str, params: Any) -> list[Any]:
    """Read in ``callers`` tasks of one event loop."""
    async with AsyncCacheClient.from_env() as client:
        await client.get_entry(query, params)
        start = asyncio.Event()

        async def read() -> Any:
            await start.wait()
            try:
                return counted(await client.get_entry(query, params))
            except CacheError as error:
                return repr(error)

        reads = [asyncio.create_task(read()) for _ in range(callers)]
        await asyncio.to_thread(wait_for_the_start)
        start.set()
        answers = await asyncio.gather(*reads)
        assert await client.flush(MAX_WAIT_SECONDS)
    return answers


def counted(entry: Entry[Any]) -> Any:
    """Return the fields of an answer that are counted."""
    return entry.state.value, entry.refresh.value, entry.value["load"]


def wait_for_the_start() -> None:
    """Report that all is ready, and wait for the start."""
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()


if __name__ == "__main__":
    main()
