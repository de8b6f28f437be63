"""Display of a run: a live table on a terminal, one line every few seconds elsewhere, both from one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from refresher.demo.counts import WINDOW_SECONDS, Tally

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from refresher.demo.outage import Stage
    from refresher.demo.staleness import Comparison
    from refresher.demo.workers import WorkerCounts

FRAMES_PER_SECOND: Final = 4
LINE_SECONDS: Final = 2.0
LINES_OF_HISTORY: Final = 4


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment.

    ``recent`` and ``recent_loads`` are counts of the last two seconds, ``lead_seconds`` is the mean δ of the last
    commits; ``history`` has the events with their times (in seconds since the start).
    """

    elapsed_seconds: float
    stage: Stage
    tally: Tally
    recent: Tally
    queued: int
    worker: WorkerCounts
    recent_loads: int
    lead_seconds: float
    broken: int
    comparison: Comparison | None
    history: list[tuple[float, str]]

    @property
    def reads_per_second(self) -> float:
        """Rate of the last two seconds."""
        return self.recent.reads / WINDOW_SECONDS


Show: TypeAlias = Callable[[Snapshot], None]


def display_on(console: Console, *, seconds: float | None) -> AbstractContextManager[Show]:
    """Return a display of snapshots on ``console``; ``seconds`` is None for a run without a fixed end."""
    return _live(console, seconds) if console.is_terminal else plain_lines(console)


@contextmanager
def _live(console: Console, seconds: float | None) -> Iterator[Show]:
    """Show a table that is redrawn four times a second."""
    with Live(console=console, refresh_per_second=FRAMES_PER_SECOND) as live:
        yield lambda snapshot: live.update(table_of(snapshot, seconds))


def table_of(snapshot: Snapshot, seconds: float | None) -> RenderableType:
    """Return the table of a snapshot; fits 80 × 24."""
    until = "until Ctrl-C" if seconds is None else f"of {seconds:g} s"
    elapsed = f"{snapshot.elapsed_seconds:5.1f} s {until}   "
    colour = "green" if snapshot.stage.has_worker else "red"
    head = Text.assemble((elapsed, "bold"), (f"● {snapshot.stage.value}", colour))
    return Panel(
        Group(head, Text(), _figures(snapshot), *_comparison(snapshot.comparison), *_history(snapshot)),
        title="refresher demo", title_align="left", border_style="dim", padding=(0, 1),
    )  # fmt: skip


@contextmanager
def plain_lines(console: Console) -> Iterator[Show]:
    """Print one line every two seconds, and one per event."""
    next_at, shown = 0.0, 0

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(snapshot: Snapshot) -> None:
        nonlocal next_at, shown
        for at_seconds, sentence in snapshot.history[shown:]:
            line(f"{at_seconds:5.1f} s  {sentence}")
        shown = len(snapshot.history)
        if snapshot.elapsed_seconds < next_at:
            return
        next_at = snapshot.elapsed_seconds + LINE_SECONDS
        tally, worker = snapshot.tally, snapshot.worker
        line(
            f"{snapshot.elapsed_seconds:5.1f} s  {snapshot.reads_per_second:6,.0f} reads/s  "
            f"fresh {tally.fresh:,}  stale {tally.stale:,}  misses {tally.misses:,}  failed {tally.failed:,}  "
            f"p99 {_ms(snapshot.recent.at_once.quantile_seconds(0.99))}  queued {snapshot.queued}  "
            f"running {worker.running}  committed {worker.committed:,}  rejected {worker.rejected_for.total()}  "
            f"δ {_ms(snapshot.lead_seconds)}"
        )
        if snapshot.comparison is not None:
            line(f"{snapshot.elapsed_seconds:5.1f} s  {' | '.join(map(' '.join, rows_of(snapshot.comparison)))}")

    yield show


def _figures(snapshot: Snapshot) -> Table:
    tally, worker, latency = snapshot.tally, snapshot.worker, snapshot.recent.at_once
    columns: list[list[tuple[str, str]]] = [
        [
            ("reads/s", f"{snapshot.reads_per_second:,.0f}"),
            ("fresh", f"{tally.fresh:,}"),
            ("stale served", f"{tally.stale:,}"),
            ("misses", f"{tally.misses:,}"),
            ("failed", f"{tally.failed:,}"),
            ("read p50", _ms(latency.quantile_seconds(0.5))),
            ("read p99", _ms(latency.quantile_seconds(0.99))),
        ],
        [
            ("triggered", f"{tally.triggered:,}"),
            ("deduplicated", f"{tally.spared:,}"),
            ("dropped", f"{tally.dropped + tally.trigger_failures:,}"),
            ("queued", f"{snapshot.queued:,}"),
            ("running", f"{worker.running:,}"),
        ],
        [
            ("committed", f"{worker.committed:,}"),
            ("rejected", f"{worker.rejected_for.total():,}"),
            ("abandoned", f"{worker.abandoned:,}"),
            ("origin queries/s", f"{snapshot.recent_loads / WINDOW_SECONDS:,.0f}"),
            ("δ (lead time)", _ms(snapshot.lead_seconds)),
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


def rows_of(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the rows of the comparison with and without the feed."""
    both = comparison.by_feed, comparison.by_ttl
    return [
        (f"{comparison.writes:,} writes", "with the feed", "without it"),
        ("TTL", "1 h", "3 s"),
        ("outdated reads", *(f"{one.share:.1%}" for one in both)),
        ("outdated for", *(f"≤ {_ms(one.longest_seconds)}" for one in both)),
    ]


def _comparison(comparison: Comparison | None) -> Iterator[RenderableType]:
    if comparison is None:
        return
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim", no_wrap=True)
    for _ in range(2):
        table.add_column(justify="right", min_width=14, no_wrap=True)
    (_, *titles), *rows = rows_of(comparison)
    table.add_row(*(Text(title, style="bold dim") for title in (f"STALENESS, {_}", *titles)))
    for row in rows:
        table.add_row(*row)
    yield from (Text(), table)


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
