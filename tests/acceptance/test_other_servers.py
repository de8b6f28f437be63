"""Suites on other releases of the servers. All other tests use the Valkey that users get, and the newest Neo4j."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from refresher.embedded.maven import LTS, neo4j_jars
from tests.acceptance.conftest import ROOT
from tests.servers.redis_binaries import OLDEST, SERVERS
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS

SUITES: Final = {
    "steps": (
        "tests/contract", "--ignore=tests/contract/test_wire_formats.py", "--ignore-glob=*/contract/*interleavings.py",
    ),
    "machines": (
        "tests/property/test_lease_machine.py", "tests/property/test_tag_machine.py",
        *(f"tests/contract/test_{kind}interleavings.py" for kind in ("", "flow_", "tag_")),
    ),
    "readers": ("tests/integration/reader", "tests/integration/test_tracking.py"),
    "main job": ("tests/acceptance/test_main_job.py",),
    "cluster": ("tests/integration/topologies/test_cluster.py", "tests/integration/topologies/test_workers.py"),
    "sentinels": ("tests/integration/topologies/test_sentinels.py",),
    "failover": ("tests/acceptance/faults/test_cache_state.py", "tests/acceptance/worker_faults/test_failover.py"),
    "users": ("tests/integration/topologies/test_users.py", "tests/acceptance/security"),
}  # fmt: skip
PROMISED: Final = {"steps", "readers", "main job", "cluster", "sentinels"}
LACKING: Final = {(OLDEST, "users"): "the users of deploy/redis need read-only keys and selectors, of Redis 7.0"}
DEFAULT: Final = list(SERVERS)[-1]
GRAPH_SUITE: Final = ("tests/integration/test_graph_probe.py", "tests/integration/test_values_from_a_graph.py")
"""The demo's queries run on it in `test_demo`, the change feed in its own tests."""


def cases() -> list[object]:
    """Each server with each suite but those that it lacks a feature for; in each CI what is promised of the oldest."""
    pairs = [(server, suite) for server in SERVERS for suite in SUITES if (server, suite) not in LACKING]
    return [
        pytest.param(
            server,
            suite,
            id=f"{server}-{suite}",
            marks=[pytest.mark.longer] if server == OLDEST and suite in PROMISED else [pytest.mark.long],
        )
        for server, suite in pairs
        if server != DEFAULT
    ]


@pytest.mark.promise("Protocol", "Steps, readers, cluster and Sentinels work on the oldest supported Redis, 6.2")
@pytest.mark.timeout(10 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize(("server", "suite"), cases())
def test_a_suite_passes_on_another_redis(server: str, suite: str) -> None:
    SERVERS[server]()  # else it is missing here, and this test is skipped
    # Both kinds of readers send the same commands.
    kinds = () if IS_LONG else ("-k", "not async")
    passes(*SUITES[suite], *kinds, selected="not long and not alone", TEST_REDIS=server)


@pytest.mark.neo4j
@pytest.mark.timeout(10 * MAX_WAIT_SECONDS)
def test_the_graph_s_suite_passes_on_the_neo4j_with_long_term_support() -> None:
    neo4j_jars(LTS)  # else it is missing here, and this test is skipped
    passes(*GRAPH_SUITE, selected="neo4j and not long", TEST_NEO4J="5.26")


def passes(*suite: str, selected: str, **env: str) -> None:
    """Run tests in one process: those of another run would wait for their turn until this one has ended.

    At their usual size, in long runs too: the long ones of the state machines take minutes on each server.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "LONG_TESTS"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", selected, *suite],
        cwd=ROOT, env={**own, "CI": "true", **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
