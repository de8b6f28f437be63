"""Each component is broken in turn, beside a real Prometheus: only its own alerts fire, and doctor names the fault.

`make test-long` breaks everything that docs/reference/failures.md has a row for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from refresher.embedded import ArcadeDbServer, RedisServer
from tests.acceptance.conftest import ROOT
from tests.support.monitored_system import MonitoredSystem
from tests.support.requirements import IS_LONG
from tests.support.system_faults import FAULTS, Fault
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

TRIED = [
    pytest.param(fault, id=fault.name, marks=pytest.mark.long if fault.is_long else pytest.mark.longer)
    for fault in FAULTS
]


@pytest.fixture(scope="module")
def system(
    arcadedb: ArcadeDbServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MonitoredSystem]:
    """One system for all faults: each is fixed before the next."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("plant")
        system = MonitoredSystem(stack, arcadedb, redis_server, folder, with_flower=IS_LONG)
        eventually(lambda: system.prometheus.query('sum(cache_hit_total{query="people"}) > 0'), "it is read")
        yield system


@pytest.mark.promise("Contract and operation", "A fault raises its alerts, and `doctor` names it")
@pytest.mark.timeout(4 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("fault", TRIED)
def test_a_fault_raises_only_its_own_alerts_and_doctor_names_it(system: MonitoredSystem, fault: Fault) -> None:
    wait(system, lambda: is_well(system), "all is well before")
    fault.breaks(system)
    try:
        wait(system, lambda: has_alerts_of(system, fault), "its alerts fire")
        wait(system, lambda: is_reported_by_doctor(system, fault), "doctor reports it")
    finally:
        fault.repair(system)
    wait(system, lambda: is_well(system), "all is well again")


def wait(system: MonitoredSystem, condition: Callable[[], bool], what: str) -> None:
    """Wait; add the alerts and doctor's findings to the error of a timeout."""
    try:
        eventually(condition, what)
    except AssertionError as error:
        error.add_note(f"alerts: {sorted(system.prometheus.firing())}")
        error.add_note(f"doctor: {system.doctor()}")
        raise


def is_well(system: MonitoredSystem) -> bool:
    """Return whether no alert fires. Dead letters are dropped: a load that began before the fix may fail, too."""
    firing = system.prometheus.firing()
    if "XFetchDeadLetters" in firing:
        system.forget_failures()
    return not firing


def has_alerts_of(system: MonitoredSystem, fault: Fault) -> bool:
    """Return whether all alerts of the fault fire, and no unrelated one."""
    firing = system.prometheus.firing()
    return fault.raises <= firing <= fault.raises | fault.may


def is_reported_by_doctor(system: MonitoredSystem, fault: Fault) -> bool:
    """Return whether doctor has a line on the fault, and exits accordingly."""
    said = system.doctor()
    is_problem = any(level == "problem" for level, _ in fault.doctor.values())
    return (not is_problem or said.exit_code == 1) and all(
        said.findings.get(check, ("", ""))[0] == level and words in said.findings[check][1]
        for check, (level, words) in fault.doctor.items()
    )


def test_each_fault_is_documented_with_its_alerts() -> None:
    page = (ROOT / "docs" / "reference" / "failures.md").read_text(encoding="utf-8")
    table = page.split("\n## How a fault is reported\n")[1]
    rows = {
        name: (alerts, checks)
        for name, alerts, checks in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|", table, re.MULTILINE)
    }
    for fault in FAULTS:
        alerts, checks = rows[fault.name]
        assert fault.raises <= set(re.findall(r"`(\w+)`", alerts)), fault.name
        assert set(fault.doctor) - {"worker here"} <= set(re.findall(r"`([^`]+)`", checks)), fault.name
