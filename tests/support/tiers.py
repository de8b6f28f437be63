"""Tiers of tests, by what they need: a pytest plugin with the option ``--tier``.

Each test is in exactly one of the first three tiers or, marked `long`, in the last alone; ``long`` also runs what is
marked `longer`, and does more there. Without the option pytest runs what it is given.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest
from xdist.scheduler import LoadGroupScheduling

from tests.support.budget import BUDGET_SECONDS, BudgetPlugin, ProcessorTime
from tests.support.waiting import MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from xdist.remote import Producer

RESOURCE_OF: Final = {
    "redis_server": "redis",
    "clocked_redis": "compiler",
    "arcadedb": "graph",
    "neo4j_server": "neo4j",
    "neo4j_with_apoc": "neo4j",
    "neo4j": "neo4j",
    "rabbitmq": "rabbitmq",
    "browser": "browser",
}
"""The resource behind a fixture, or behind a parameter of that name."""

FOLDERS: Final = {
    "tests/acceptance/": "slow",
    "tests/acceptance/test_containers.py": "container",
    "tests/integration/topologies/": "slow",
    "tests/integration/helm/": "k8s",
    "tests/model/": "spin",
}
UNIT: Final = "tests/unit/"
NOT_FROM_PIP: Final = frozenset({"neo4j", "rabbitmq", "browser", "k8s", "container", "spin", "compiler", "git"})
FIRST: Final = (
    (
        "tests/acceptance/faults/", "tests/acceptance/hosts/", "tests/acceptance/graph/",
        "tests/acceptance/partitions/", "tests/acceptance/test_containers.py",
        "tests/acceptance/test_quick_start.py", "tests/acceptance/test_demo.py", "tests/acceptance/test_main_job.py",
        "tests/acceptance/worker_faults/test_every_end_counts.py", "tests/acceptance/test_other_servers.py",
    ),
    (
        "tests/acceptance/worker_faults/", "tests/integration/topologies/", "tests/model/test_model.py",
        "tests/acceptance/test_frameworks.py", "tests/acceptance/test_rolling_deploys.py",
    ),
    ("tests/acceptance/", "tests/integration/test_embedded_servers.py", "tests/typing/", "tests/property/"),
)  # fmt: skip
"""Files that take longest, and files that take long: they start early, so that no process runs one alone at the end.

They come in this order and by name, whatever order pytest-randomly gives the other files, and the tests of each file.
"""

TOGETHER: Final = {
    "neo4j": (
        "tests/acceptance/test_neo4j.py", "tests/acceptance/graph/test_graph_faults.py",
        "tests/integration/feed/test_feed_without_apoc.py",
        "tests/integration/test_demo_queries.py", "tests/integration/test_graph_probe.py",
        "tests/integration/test_loads_that_write.py", "tests/integration/test_own_cypher.py",
        "tests/integration/test_values_from_a_graph.py", "tests/integration/test_vectors_from_neo4j.py",
    ),
    "neo4j with apoc": (
        "tests/acceptance/graph/test_change_feed.py", "tests/acceptance/graph/test_feed_oracle.py",
        "tests/integration/feed/test_feed_consumer.py", "tests/integration/feed/test_feed_doctor.py",
        "tests/integration/feed/test_feed_notes.py", "tests/integration/feed/test_feed_trigger.py",
    ),
    "rabbitmq under load": (
        "tests/acceptance/faults/test_broker_faults.py", "tests/acceptance/test_broker_outages.py",
        "tests/acceptance/worker_faults/test_shutdowns.py", "tests/acceptance/test_rabbitmq.py",
        "tests/acceptance/test_main_job_on_rabbitmq.py",
    ),
    "rabbitmq": (
        "tests/acceptance/hosts/test_hosts.py", "tests/acceptance/test_forks.py", "tests/acceptance/test_poison.py",
        "tests/acceptance/test_tracing.py", "tests/acceptance/security/test_rabbitmq_rights.py",
    ),
    "browser": (
        "tests/acceptance/test_flower.py", "tests/acceptance/test_status_page.py",
        "tests/acceptance/test_status_page_looks.py",
    ),
}  # fmt: skip
"""Files that one process of xdist runs, since each process would start a server of its own for them.

Neo4j and RabbitMQ take seven seconds of a processor to start, Chromium two.
"""

ALONE: Final = "alone"
"""The group of the tests marked so. They come last, since each waits for all others that have begun."""

APART: Final = ("tests/acceptance/partitions/test_partitions.py", "tests/acceptance/test_other_servers.py")
"""Files whose tests take minutes each and share nothing: any process may run any of them."""

MAX_TEST_SECONDS: Final = 2.5 * MAX_WAIT_SECONDS
"""The timeout of a test without a mark `timeout`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=sorted(BUDGET_SECONDS), help="run the tests of this tier alone")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by what it needs, and keep those of the tier; pytest-randomly has shuffled them already."""
    for item in items:
        for resource in sorted(resources_of(item)):
            item.add_marker(resource)
        if item.get_closest_marker(ALONE):
            item.add_marker(pytest.mark.xdist_group(ALONE))
    tier = config.getoption("tier")
    if tier:
        items[:] = sorted((item for item in items if is_in(tier, item)), key=lambda item: turn_of(item.nodeid))
    places: dict[str, int] = {}
    for item in items:
        places.setdefault(file_of(item.nodeid), len(places))
    items.sort(
        key=lambda item: (
            tier and item.get_closest_marker(ALONE) is not None,
            places[file_of(item.nodeid)],
            item.get_closest_marker("last") is not None,
        )
    )


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Say how many tests a tier has; those of the others don't count as deselected."""
    tier = config.getoption("tier")
    return [f"tier {tier}: {len(items)} tests"] if tier else []


def resources_of(item: pytest.Item) -> set[str]:
    """Return the resources that a test needs by its fixtures, parameters and folder.

    A unit test needs no server. The tests of a folder that is `slow` are that, but for those marked `smoke`.
    """
    if item.nodeid.startswith(UNIT):
        return set()
    is_smoke = item.get_closest_marker("smoke") is not None
    names = set(getattr(item, "fixturenames", ()))
    if hasattr(item, "callspec"):
        names |= {value for value in item.callspec.params.values() if isinstance(value, str)}
    found = {RESOURCE_OF[name] for name in names & RESOURCE_OF.keys()}
    by_folder = {resource for folder, resource in FOLDERS.items() if item.nodeid.startswith(folder)}
    return found | (by_folder - {"slow"} if is_smoke else by_folder)


def is_in(tier: str, item: pytest.Item) -> bool:
    """Return whether a test, marked already, is run by a tier."""
    return tier == tier_of(item) or (tier == "long" and item.get_closest_marker("longer") is not None)


def tier_of(item: pytest.Item) -> str:
    """Return the tier that a test belongs to."""
    marks = {mark.name for mark in item.iter_markers()}
    if "long" in marks:
        return "long"
    if item.nodeid.startswith(UNIT):
        return "check"
    return "all" if "slow" in marks or marks & NOT_FROM_PIP else "test"


def turn_of(nodeid: str) -> tuple[int, str]:
    """Return the sort key of a file's tests: those that take longest come first; all others are equal."""
    for turn, paths in enumerate(FIRST):
        if nodeid.startswith(paths):
            return turn, file_of(nodeid)
    return len(FIRST), ""


def file_of(nodeid: str) -> str:
    """Return the path of a test's file."""
    return nodeid.partition("::")[0]


def unit_of_work(nodeid: str) -> str:
    """Return the unit that one process of xdist runs: a file, those `TOGETHER` with it, or a test that is `APART`.

    To the name of a test in a group xdist adds that of the group.
    """
    path = file_of(nodeid)
    if nodeid.endswith(f"@{ALONE}"):
        return ALONE
    if path in APART:
        return nodeid
    return next((name for name, paths in TOGETHER.items() if path in paths), path)


class _UnitScheduling(LoadGroupScheduling):
    """Schedules units of work, where ``--dist loadgroup`` schedules groups."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of_work(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadGroupScheduling | None:
    """Give files that share a costly server to the same process."""
    return _UnitScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set a timeout for each test, so that a hanging one shows where; and time the tier."""
    if config.option.timeout is None:
        config.option.timeout = MAX_TEST_SECONDS
    tier = config.getoption("tier")
    # A run that measures coverage is slower than any budget.
    if tier:
        config.pluginmanager.register(ProcessorTime())
    if tier and not hasattr(config, "workerinput") and "COVERAGE_FILE" not in os.environ:
        config.pluginmanager.register(BudgetPlugin(tier))
