"""Each part is broken in turn, beside a real Prometheus: its alerts fire and no others, and doctor says what it is.

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

TRIED = [fault for fault in FAULTS if IS_LONG or not fault.is_long]


@pytest.fixture(scope="module")
def system(
    arcadedb: ArcadeDbServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MonitoredSystem]:
    """One plant for all faults: each is mended before the next."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("plant")
        system = MonitoredSystem(stack, arcadedb, redis_server, folder, with_flower=IS_LONG)
        eventually(lambda: system.prometheus.query('sum(cache_hit_total{query="people"}) > 0'), "it is read")
        yield system


@pytest.mark.timeout(4 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("fault", TRIED, ids=lambda fault: fault.name)
def test_a_fault_raises_its_alerts_and_doctor_says_what_it_is(system: MonitoredSystem, fault: Fault) -> None:
    wait(system, lambda: is_well(system), "all is well before")
    fault.breaks(system)
    try:
        wait(system, lambda: said_by(system, fault), "its alerts fire")
        wait(system, lambda: told(system, fault), "doctor says it")
    finally:
        fault.mends(system)
    wait(system, lambda: is_well(system), "all is well again")


def wait(system: MonitoredSystem, condition: Callable[[], bool], what: str) -> None:
    """Wait, and say what the plant told instead where it was in vain."""
    try:
        eventually(condition, what)
    except AssertionError as error:
        error.add_note(f"alerts: {sorted(system.prometheus.firing())}")
        error.add_note(f"doctor: {system.doctor()}")
        raise


def is_well(system: MonitoredSystem) -> bool:
    """Whether no alert fires. What was given up is dropped: also a load that began before the mend may have failed."""
    firing = system.prometheus.firing()
    if "XFetchDeadLetters" in firing:
        system.forget_failures()
    return not firing


def said_by(system: MonitoredSystem, fault: Fault) -> bool:
    """Whether all alerts of the fault fire, and none that has nothing to do with it."""
    firing = system.prometheus.firing()
    return fault.raises <= firing <= fault.raises | fault.may


def told(system: MonitoredSystem, fault: Fault) -> bool:
    """Whether doctor has a line on the fault, and exits accordingly."""
    said = system.doctor()
    is_problem = any(level == "problem" for level, _ in fault.doctor.values())
    return (not is_problem or said.exit_code == 1) and all(
        said.findings.get(check, ("", ""))[0] == level and words in said.findings[check][1]
        for check, (level, words) in fault.doctor.items()
    )


def test_each_fault_stands_in_the_documentation_with_its_alerts() -> None:
    page = (ROOT / "docs" / "reference" / "failures.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"\*([^*|]+)\*: ([^|]*?)\. Panel: ", page))
    for fault in FAULTS:
        assert fault.raises <= set(re.findall(r"`(\w+)`", rows[fault.name])), fault.name
