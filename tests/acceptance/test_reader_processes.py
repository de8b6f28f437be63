"""A thousand readers at once, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.acceptance.conftest import ROOT, System
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.mark.promise("Reading", "A thousand readers of a stale entry cause one load, and none waits")
@pytest.mark.parametrize("callers", ["threads", "tasks"])
def test_a_thousand_readers_in_four_processes_cause_one_recompute_and_none_waits(
    system_with_worker: System, callers: str
) -> None:
    system, client = system_with_worker, system_with_worker.client()
    params = {"key": callers, "hold": callers}
    system.open_gate(callers)
    client.get("long_lived", params)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.reader_process", callers, "250", "long_lived", json.dumps(params)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**system.env, "CACHE_REDIS_TIMEOUT": f"{MAX_WAIT_SECONDS}s"},  # 1,000 callers on a busy machine
        )
        for _ in range(4)
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        client.invalidate("long_lived", params)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        # Every answer is in before the one load is let go on: no reader can have waited for it.
        answers: Counter[str] = Counter()
        for process in processes:
            answers.update(json.loads(process.communicate(timeout=MAX_WAIT_SECONDS)[0].splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert sum(answers.values()) == 1000
    assert all(answer.startswith("('stale', '") and answer.endswith("', 1)") for answer in answers), answers
    eventually(lambda: system.loads(callers) == 2, "the one refresh has begun")
    system.open_gate(callers)
    eventually(lambda: client.get("long_lived", params)["load"] == 2, "the new value")
    assert system.loads(callers) == 2
    assert system.cache.keys("cache:l1:*") == []
