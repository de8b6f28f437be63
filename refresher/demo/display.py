"""Display of a run: a live table on a terminal, one line every few seconds elsewhere, both from one snapshot."""

from __future__ import annotations

import sys
import termios
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from refresher.demo.chaos import Stage

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from refresher.demo.state import Histogram, RunState, Tally
    from refresher.demo.worker_events import WorkerEvents

FRAMES_PER_SECOND: Final = 4
LINE_SECONDS: Final = 2.0
LINES_OF_HISTORY: Final = 4
STATUS: Final = {
    Stage.AHEAD: "worker alive",
    Stage.WITHOUT_WORKER: "worker killed (SIGKILL), reads continue",
    Stage.STARTING: "no worker yet, reads continue; a new one is starting",
    Stage.RECOVERING: "new worker alive, catching up",
    Stage.OVER: "new worker alive",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment. Durations in seconds; rates and latencies are those of the last two."""

    elapsed_seconds: float
    stage: Stage
    tally: Tally
    reads_per_second: float
    latency: Histogram
    queued: int
    running: int
    committed: int
    rejected: int
    failed: int
    loads_per_second: float
    delta_seconds: float
    broken: int
    history: list[tuple[float, str]]

    @property
    def is_without_worker(self) -> bool:
        """Whether there is no worker right now."""
        return self.stage in {Stage.WITHOUT_WORKER, Stage.STARTING}


def take_snapshot(state: RunState, events: WorkerEvents, stage: Stage, began_at: float) -> Snapshot:
    """Return the run as it is now."""
    now = time.monotonic()
    with events.lock:
        counts = events.counts
        state.record_loads(counts.loads, now)
        running, committed, rejected = len(counts.running), counts.committed, sum(counts.rejected_for.values())
        failed, delta_seconds = counts.given_up, counts.delta_seconds
    return Snapshot(
        elapsed_seconds=now - began_at,
        stage=stage,
        tally=state.tally,
        reads_per_second=state.reads_per_second(now),
        latency=state.latency(now),
        queued=events.waiting(),
        running=running,
        committed=committed,
        rejected=rejected,
        failed=failed,
        loads_per_second=state.loads_per_second(now),
        delta_seconds=delta_seconds,
        broken=len(state.checker.broken),
        history=[(at - began_at, sentence) for at, sentence in state.history],
    )


class Display(Protocol):
    """Shows a run; a context manager for as long as there is something to show."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""


def display_on(console: Console, *, seconds: float | None) -> Display:
    """Return the display for ``console``; ``seconds`` None: the run has no end of its own."""
    return LiveDisplay(console, seconds) if console.is_terminal else PlainDisplay(console)


class LiveDisplay(AbstractContextManager["LiveDisplay"]):
    """A table that is redrawn four times a second; fits 80 × 24."""

    def __init__(self, console: Console, seconds: float | None) -> None:
        self._seconds = seconds
        self._live = Live(console=console, refresh_per_second=FRAMES_PER_SECOND)
        self._while_shown = ExitStack()

    def __enter__(self) -> Self:
        self._while_shown.enter_context(_ctrl_c_not_echoed())
        self._while_shown.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._while_shown.close()

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""
        self._live.update(self.rendered(snapshot))

    def rendered(self, snapshot: Snapshot) -> RenderableType:
        """Return the table of a snapshot."""
        until = "until Ctrl-C" if self._seconds is None else f"of {self._seconds:g} s"
        colour = "red" if snapshot.is_without_worker else "green"
        elapsed = f"{snapshot.elapsed_seconds:5.1f} s {until}   "
        head = Text.assemble((elapsed, "bold"), (f"● {STATUS[snapshot.stage]}", colour))
        return Group(
            Panel(
                Group(head, Text(), _figures(snapshot), *_history(snapshot)),
                title="refresher demo", title_align="left", border_style="dim", padding=(0, 1),
            )
        )  # fmt: skip


class PlainDisplay(AbstractContextManager["PlainDisplay"]):
    """One line every two seconds, and one per event."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_at, self._shown = 0.0, 0

    def __exit__(self, *_: object) -> None:
        """Nothing to end: each line is complete."""

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot, when it is time."""
        for at_seconds, sentence in snapshot.history[self._shown :]:
            self._line(f"{at_seconds:5.1f} s  {sentence}")
        self._shown = len(snapshot.history)
        if snapshot.elapsed_seconds >= self._next_at:
            self._next_at = snapshot.elapsed_seconds + LINE_SECONDS
            tally = snapshot.tally
            self._line(
                f"{snapshot.elapsed_seconds:5.1f} s  {snapshot.reads_per_second:6,.0f} reads/s  "
                f"fresh {tally.fresh:,}  stale {tally.stale:,}  misses {tally.misses:,}  failed {tally.failed:,}  "
                f"p99 {_ms(snapshot.latency.quantile_seconds(0.99))}  queued {snapshot.queued}  "
                f"running {snapshot.running}  "
                f"committed {snapshot.committed:,}  rejected {snapshot.rejected}  δ {_ms(snapshot.delta_seconds)}"
            )

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _ctrl_c_not_echoed() -> Iterator[None]:
    """Keep the terminal from writing ``^C`` into the table, which would be drawn twice then."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    quiet = termios.tcgetattr(sys.stdin)
    quiet[3] &= ~termios.ECHOCTL
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _figures(snapshot: Snapshot) -> Table:
    tally = snapshot.tally
    columns: list[list[tuple[str, str]]] = [
        [
            ("reads/s", f"{snapshot.reads_per_second:,.0f}"),
            ("fresh", f"{tally.fresh:,}"),
            ("stale served", f"{tally.stale:,}"),
            ("misses", f"{tally.misses:,}"),
            ("failed", f"{tally.failed:,}"),
            ("read p50", _ms(snapshot.latency.quantile_seconds(0.5))),
            ("read p99", _ms(snapshot.latency.quantile_seconds(0.99))),
        ],
        [
            ("triggered", f"{tally.triggered:,}"),
            ("deduplicated", f"{tally.spared:,}"),
            ("dropped", f"{tally.dropped + tally.trigger_failures:,}"),
            ("queued", f"{snapshot.queued:,}"),
            ("running", f"{snapshot.running:,}"),
        ],
        [
            ("committed", f"{snapshot.committed:,}"),
            ("rejected", f"{snapshot.rejected:,}"),
            ("abandoned", f"{snapshot.failed:,}"),
            ("origin queries/s", f"{snapshot.loads_per_second:,.0f}"),
            ("δ (lead time)", _ms(snapshot.delta_seconds)),
            ("violations", f"{snapshot.broken:,}"),
        ],
    ]
    table = Table.grid(padding=(0, 3), expand=False)
    titles = ("READS", "REFRESHES", "WORKER")
    for _ in titles:
        table.add_column()
    table.add_row(*(Text(title, style="bold dim") for title in titles))
    table.add_row(*(_column(rows) for rows in columns))
    return table


def _column(rows: list[tuple[str, str]]) -> Table:
    column = Table.grid(padding=(0, 1))
    column.add_column(style="dim", no_wrap=True)
    column.add_column(justify="right", min_width=8, no_wrap=True)
    for label, value in rows:
        wrong = label in {"failed", "violations", "abandoned"} and value != "0"
        column.add_row(label, Text(value, style="bold red" if wrong else ""))
    return column


def _history(snapshot: Snapshot) -> list[Text]:
    """Return the last events, always the same number of lines, so that the frame keeps its height."""
    lines = [f"{at_seconds:5.1f} s  {sentence}" for at_seconds, sentence in snapshot.history[-LINES_OF_HISTORY:]]
    lines += [""] * (LINES_OF_HISTORY - len(lines))
    return [Text(), *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)]


def _ms(duration_seconds: float) -> str:
    return f"{duration_seconds * 1000:.1f} ms" if duration_seconds < 1 else f"{duration_seconds:.2f} s"
