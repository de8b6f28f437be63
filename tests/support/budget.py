"""Time budgets of test tiers, evaluated with regard to the machine: its speed, and what else it did.

Every run reports its time. Where CI is set, a run over its budget fails, unless others used the processors meanwhile.
On a machine that is slower than the one for which the budgets were set, they are longer in proportion.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from tests.support.requirements import is_set

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

BUDGET_SECONDS: Final = {"check": 60, "test": 300, "all": 840, "long": 5_400}
"""How long a tier may take on two quiet cores, from pytest's start to its end."""

WORK_SECONDS: Final = 0.002
"""Processor time of `_work` on the cores that the budgets assume, while a tier runs."""

TOLERANCE: Final = 1.5
"""How many times its budget a run may take: disks and networks differ from one machine to the other, too.

What fails is a tier that has grown: on one machine the same tests take a fifth more or less from run to run.
"""

MAX_OTHERS_SHARE: Final = 0.15
"""Of all processor time. Beyond it the machine was not quiet. What an orphan of a test used counts as others', too."""

SHOWN_FILES: Final = 30
PROCESSOR_SECONDS: Final = "processor_seconds"
FAILS_OVER_BUDGET: Final = is_set("CI")


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time until now, in seconds: of all processors, busy, and used by this run."""

    available: float
    busy: float
    own: float

    @classmethod
    def now(cls) -> Usage:
        """Read it; that of children counts once they have ended, so take the last reading after them."""
        machine, own = psutil.cpu_times(), os.times()
        idle = machine.idle + getattr(machine, "iowait", 0.0)
        # The time of guests is part of `user` as well.
        available = sum(machine) - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0)
        return cls(available, available - idle, sum(own[:4]))

    def others_share(self, since: Usage) -> float:
        """Return the share of the processors' time that others have used."""
        others = (self.busy - since.busy) - (self.own - since.own)
        return max(0.0, others) / max(self.available - since.available, 0.01)


class Slowness:
    """How slow the processors are, from the start on: a thread does one small piece of work again and again.

    The processor time that it takes depends on their clock, their caches, and what a host runs beside.
    """

    def __init__(self) -> None:
        self._took: list[float] = []
        self._over = threading.Event()
        threading.Thread(target=self._measure, name="measures-the-machine", daemon=True).start()

    def end(self) -> float:
        """Stop measuring; return the ratio of the median duration to `WORK_SECONDS` on two cores, at least 1."""
        self._over.set()
        slowness = statistics.median(self._took or [0.0]) / WORK_SECONDS
        return max(1.0, slowness * 2 / min(2, os.cpu_count() or 1))

    def _measure(self) -> None:
        while not self._over.wait(1.0):
            began = time.thread_time()
            _work()
            self._took.append(time.thread_time() - began)


def _work() -> None:
    sum(range(100_000))


@dataclass(frozen=True, slots=True)
class Result:
    """A tier's duration; what of the processors' time others used meanwhile, and how slow the machine was."""

    tier: str
    seconds: float
    others_share: float
    slowness: float

    @property
    def budget_seconds(self) -> float:
        """Return what it was allowed to take on this machine."""
        return BUDGET_SECONDS[self.tier] * self.slowness

    @property
    def is_over_budget(self) -> bool:
        """Return whether it took longer than allowed."""
        return self.seconds > self.budget_seconds

    @property
    def is_quiet(self) -> bool:
        """Return whether the machine had little other load."""
        return self.others_share <= MAX_OTHERS_SHARE

    @property
    def fails(self) -> bool:
        """Return whether it took too long on a quiet machine."""
        return self.seconds > TOLERANCE * self.budget_seconds and self.is_quiet

    @property
    def _on_this_machine(self) -> str:
        return f" ({self.budget_seconds:.0f} s on this machine)" if self.slowness > 1 else ""

    def lines(self, processor_seconds_of: Counter[str], seconds_of: Counter[str]) -> Iterator[str]:
        """Yield the report's lines, by file: those that used the processors most come first."""
        yield f"tier {self.tier}: {self.seconds:.0f} s of {BUDGET_SECONDS[self.tier]} s{self._on_this_machine}"
        if self.fails:
            yield "the budget is exceeded on a quiet machine; these files used the processors most:"
        elif self.is_over_budget:
            yield f"the budget is exceeded; others used {self.others_share:.0%} of the processors"
        yield f"{'processor s':>12}{'s':>9}"
        for path, processor_seconds in processor_seconds_of.most_common(SHOWN_FILES):
            yield f"{processor_seconds:12.1f}{seconds_of[path]:9.1f}  {path}"


class ProcessorTime:
    """Adds to each report the processor time since the last one, of the test's process and its children that ended.

    Seconds alone mislead: a test that waits beside others, or for the machine, uses no processor.
    """

    def __init__(self) -> None:
        self._last = sum(os.times()[:4])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        last, self._last = self._last, sum(os.times()[:4])
        report.user_properties.append((PROCESSOR_SECONDS, self._last - last))
        return report


class BudgetPlugin:
    """Times a tier, in the process that reports; in CI it fails a run that exceeds its budget."""

    def __init__(self, tier: str) -> None:
        self._tier, self._began, self._before = tier, time.monotonic(), Usage.now()
        self._slowness = Slowness()
        self._seconds_of, self._processor_seconds_of = Counter[str](), Counter[str]()
        self._result: Result | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds_of[report.location[0]] += report.duration
        self._processor_seconds_of[report.location[0]] += dict(report.user_properties).get(PROCESSOR_SECONDS, 0.0)

    @pytest.hookimpl(trylast=True)  # the processes of xdist have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        took = time.monotonic() - self._began
        others_share = Usage.now().others_share(self._before)
        self._result = Result(self._tier, took, others_share, self._slowness.end())
        if FAILS_OVER_BUDGET and self._result.fails and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._result.lines(self._processor_seconds_of, self._seconds_of) if self._result else ():
            terminalreporter.write_line(line)
