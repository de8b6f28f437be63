"""A client used before a fork, in parent and children at once: each process has links of its own, however forked."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from refresher.embedded import RedisServer
from tests.acceptance.conftest import NO_GRAPH, ROOT, System
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.requirements import each_with_each
from tests.support.waiting import MAX_WAIT_SECONDS


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def forked(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """A system with each broker, and a worker for all tests: each has keys of its own."""
    with ExitStack() as stack:
        system = System(
            stack, stack.enter_context(RedisServer.start()), redis_server, NO_GRAPH, tmp_path_factory.mktemp("forked")
        )
        if request.param == "redis":
            system.env["CACHE_LOCAL_MAX_ENTRIES"] = "1000"
        else:
            server: RabbitMqServer = request.getfixturevalue("rabbitmq")
            system.env |= {"CACHE_BROKER_URL": server.url, "CACHE_NAMESPACE": f"t{uuid.uuid4().hex[:8]}"}
        system.start_worker()
        yield system


@pytest.mark.promise("Reading", "A forked process has its own connections and publisher")
@each_with_each("fork", ("os", "c"), "kind", ("sync", "async"), ())
def test_after_a_fork_parent_and_children_read_and_publish_independently(forked: System, fork: str, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.forking_program", fork, kind],
        cwd=ROOT, env=forked.env, capture_output=True, text=True,
        timeout=3 * MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip
    said = [json.loads(line)["met"] for line in done.stdout.splitlines()]
    assert (said, done.stderr, done.returncode) == ([[], [], []], "", 0)
