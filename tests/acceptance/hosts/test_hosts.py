"""The library in each kind of host: it is used, it is closed, the host ends well, and nothing undocumented remains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from tests.acceptance.hosts.conftest import HostSystems, drive
from tests.acceptance.hosts.table import HOSTS, Host

IMPORTS: Final = {
    "logging": {"celery: NullHandler", "kombu: NullHandler"},
    "atexit": {"multiprocessing.util._exit_function"},
}
DOCUMENTED: Final[dict[str, dict[str, set[str]]]] = {
    "import": {},
    "open": {
        "threads": {"cache-publisher", "cache-notifications", "cache-invalidations", "cache-overdue"},
        "connections": {"redis", "broker"},
        "files": {"anon_inode:[eventpoll]"},
        "celery": {"app refresher-publisher"},
        **IMPORTS,
    },
    "closed": {"threads": {"asyncio_N", "uvloop_N"}, **IMPORTS},
}
"""By moment and aspect, what `docs/how-to/frameworks.md` says of "What stays in the process"."""

# Threads, connections and files of the host itself come and go, and a child drops what it has inherited.
MAY_GO: Final = {"threads", "connections", "files"}
INHERITED: Final = {"app refresher-publisher"}


def undocumented(host: Host, moment: str, found: dict[str, list[str]]) -> list[str]:
    """Return the changes that the documentation does not name."""
    return [
        f"{moment}, {aspect}: {change}"
        for aspect, changes in found.items()
        for change in changes
        if change[2:] not in (DOCUMENTED[moment].get(aspect, set()) | host.own if change[0] == "+" else INHERITED)
        and not (change[0] == "-" and aspect in MAY_GO)
    ]


def as_case(host: Host) -> ParameterSet:
    """Name a host with its broker, and mark what it needs."""
    marks = [pytest.mark.rabbitmq] if host.broker == "rabbitmq" else []
    marks += [pytest.mark.long] if host.is_long else []
    return pytest.param(host, id=re.sub("[ ,]+", "-", f"{host.name}, {host.broker}"), marks=marks)


@pytest.mark.promise("Reading", "An application's process keeps nothing that its page does not list")
@pytest.mark.parametrize("host", [as_case(host) for host in HOSTS])
def test_a_host_uses_and_closes_the_cache_and_nothing_undocumented_remains(
    host: Host, systems: HostSystems, tmp_path: Path
) -> None:
    ended = drive(systems(host.broker), host, tmp_path)

    used = [report for report in ended.reports if "open" in report]
    closed = [report for report in ended.reports if "closed" in report]
    assert ended.exit_code == host.exit_code, ended.log
    assert ended.trouble() == []
    for reports in (used, closed):
        assert len({report["pid"] for report in reports}) == host.processes
    assert [report["states"] for report in used] == [["fresh", "stale", "fresh"]] * len(used)
    assert [report["failures"] for report in ended.reports] == [[]] * len(ended.reports)
    moments = [(moment, report[moment]) for report in ended.reports for moment in DOCUMENTED if moment in report]
    assert [line for moment, found in moments for line in undocumented(host, moment, found)] == []
