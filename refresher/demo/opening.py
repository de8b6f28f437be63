"""What comes before the traffic: the graph is made and loaded, with a line on each step and a progress bar."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from refresher.demo.social_graph import SocialGraph, load

if TYPE_CHECKING:
    from rich.console import Console

    from refresher.demo.options import DemoOptions
    from refresher.demo.places import Places


class Opening:
    """Says what is being done, and how long it took."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        """Print a line as it is."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, what: str) -> Iterator[list[str]]:
        """Print ``what`` and the seconds that the block took; words appended to the list come between."""
        began, more = time.monotonic(), list[str]()
        with self._console.status(f"{what} …") if self._console.is_terminal else _nothing():
            yield more
        self.say(f"  {' '.join([what, *more])} ({time.monotonic() - began:.1f} s)")

    def graph(self, options: DemoOptions) -> SocialGraph:
        """Read or make the graph.

        Raises:
            EdgeListError: one's own file is none.
        """
        with self.step("graph made:" if options.graph_file is None else f"{options.graph_file.name} read:") as more:
            if options.graph_file is not None:
                graph = SocialGraph.from_edge_list(options.graph_file)
            else:
                graph = SocialGraph.generated(seed=options.seed)
            more.append(
                f"{graph.persons:,} persons, {graph.edges:,} KNOWS, the best known with {graph.degrees.max():,}"
            )
        return graph

    def load(self, graph: SocialGraph, found: Places) -> None:
        """Write the graph into the database.

        Raises:
            GraphLoadError: it was not empty, or refused.
        """
        began = time.monotonic()
        columns = (TextColumn("  loading the graph"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal) as bar:
            task = bar.add_task("", total=graph.persons + graph.edges)

            def on_progress(done: int, _: int) -> None:
                found.loading = graph  # from now on there is something of ours in there
                bar.update(task, completed=done)

            load(found.driver, found.database, graph, on_progress)
        self.say(f"  graph loaded ({time.monotonic() - began:.1f} s)")


@contextmanager
def _nothing() -> Iterator[None]:
    yield
