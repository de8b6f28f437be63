"""The same suites on each supported Redis and Valkey. Elsewhere all tests use the one that users get."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from tests.acceptance.conftest import ROOT
from tests.servers.redis_binaries import OLDEST, SERVERS
from tests.support.waiting import MAX_WAIT_SECONDS

SUITES: Final = {
    "steps": ("tests/contract",),
    "machines": ("tests/property",),
    "readers": ("tests/integration/reader", "tests/integration/test_tracking.py"),
    "main job": ("tests/acceptance/test_main_job.py",),
    "cluster": ("tests/integration/topologies/test_cluster.py", "tests/integration/topologies/test_workers.py"),
    "sentinels": ("tests/integration/topologies/test_sentinels.py",),
    "users": ("tests/integration/topologies/test_users.py", "tests/acceptance/security"),
}
LACKING: Final = {(OLDEST, "users"): "the users of deploy/redis need read-only keys and selectors, of Redis 7.0"}
DEFAULT: Final = list(SERVERS)[-1]


def cases() -> list[object]:
    """Each server with each suite but those that it lacks a feature for: the oldest in each CI."""
    pairs = [(server, suite) for server in SERVERS for suite in SUITES if (server, suite) not in LACKING]
    return [
        pytest.param(server, suite, id=f"{server}-{suite}", marks=[] if server == OLDEST else [pytest.mark.long])
        for server, suite in pairs
        if server != DEFAULT
    ]


@pytest.mark.timeout(10 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize(("server", "suite"), cases())
def test_a_suite_passes_on_another_server(server: str, suite: str) -> None:
    SERVERS[server]()  # else it is missing here, and this test is skipped
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    # In one process: tests of another run would wait for their turn until this one has ended.
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long and not alone")
    done = subprocess.run(
        [*command, *SUITES[suite]],
        cwd=ROOT, env={**env, "CI": "true", "TEST_REDIS": server}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
