"""Shows the run: a live table on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, Protocol, Self

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from refresher.demo.view import STATUS, View

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

FRAMES_PER_SECOND: Final = 4
LINE_SECONDS: Final = 2.0
LINES_OF_HISTORY: Final = 4


class Display(Protocol):
    """What shows a run; a context manager for as long as there is something to show."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, view: View) -> None:
        """Show this moment."""


def display_on(console: Console, *, seconds: float | None) -> Display:
    """Return what fits ``console``; ``seconds`` None means that the run has no end of its own."""
    return LiveDisplay(console, seconds) if console.is_terminal else PlainDisplay(console)


class LiveDisplay(AbstractContextManager["LiveDisplay"]):
    """A table that is drawn anew four times a second; fits 80 × 24."""

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

    def show(self, view: View) -> None:
        """Show this moment."""
        self._live.update(self.rendered(view))

    def rendered(self, view: View) -> RenderableType:
        """Return the table."""
        until = "until Ctrl-C" if self._seconds is None else f"of {self._seconds:g} s"
        colour = "red" if view.is_without_worker else "green"
        head = Text.assemble((f"{view.elapsed_seconds:5.1f} s {until}   ", "bold"), (f"● {STATUS[view.stage]}", colour))
        return Group(
            Panel(
                Group(head, Text(), _figures(view), *_history(view)),
                title="refresher demo", title_align="left", border_style="dim", padding=(0, 1),
            )
        )  # fmt: skip


class PlainDisplay(AbstractContextManager["PlainDisplay"]):
    """A line every two seconds, and one for each thing that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_at, self._shown = 0.0, 0

    def __exit__(self, *_: object) -> None:
        """Nothing to end: each line stands for itself."""

    def show(self, view: View) -> None:
        """Show this moment, when it is time."""
        for at_seconds, sentence in view.happened[self._shown :]:
            self._line(f"{at_seconds:5.1f} s  {sentence}")
        self._shown = len(view.happened)
        if view.elapsed_seconds >= self._next_at:
            self._next_at = view.elapsed_seconds + LINE_SECONDS
            tally = view.tally
            self._line(
                f"{view.elapsed_seconds:5.1f} s  {view.reads_per_second:6,.0f} reads/s  "
                f"fresh {tally.fresh:,}  stale {tally.stale:,}  misses {tally.misses:,}  failed {tally.failed:,}  "
                f"p99 {_ms(view.latency.quantile_seconds(0.99))}  queued {view.queued}  running {view.running}  "
                f"committed {view.committed:,}  rejected {view.rejected}  δ {_ms(view.delta_seconds)}"
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


def _figures(view: View) -> Table:
    tally = view.tally
    columns: list[list[tuple[str, str]]] = [
        [
            ("reads/s", f"{view.reads_per_second:,.0f}"),
            ("fresh", f"{tally.fresh:,}"),
            ("stale served", f"{tally.stale:,}"),
            ("misses", f"{tally.misses:,}"),
            ("failed", f"{tally.failed:,}"),
            ("read p50", _ms(view.latency.quantile_seconds(0.5))),
            ("read p99", _ms(view.latency.quantile_seconds(0.99))),
        ],
        [
            ("asked for", f"{tally.triggered:,}"),
            ("deduplicated", f"{tally.spared:,}"),
            ("dropped", f"{tally.dropped + tally.trigger_failures:,}"),
            ("queued", f"{view.queued:,}"),
            ("running", f"{view.running:,}"),
        ],
        [
            ("committed", f"{view.committed:,}"),
            ("rejected", f"{view.rejected:,}"),
            ("given up", f"{view.failed:,}"),
            ("origin queries/s", f"{view.loads_per_second:,.0f}"),
            ("δ (lead time)", _ms(view.delta_seconds)),
            ("broken promises", f"{view.broken:,}"),
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
        wrong = label in {"failed", "broken promises", "given up"} and value != "0"
        column.add_row(label, Text(value, style="bold red" if wrong else ""))
    return column


def _history(view: View) -> list[Text]:
    """Return the last lines of what happened, always as many, so that the frame keeps its height."""
    lines = [f"{at_seconds:5.1f} s  {sentence}" for at_seconds, sentence in view.happened[-LINES_OF_HISTORY:]]
    lines += [""] * (LINES_OF_HISTORY - len(lines))
    return [Text(), *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)]


def _ms(duration_seconds: float) -> str:
    return f"{duration_seconds * 1000:.1f} ms" if duration_seconds < 1 else f"{duration_seconds:.2f} s"
