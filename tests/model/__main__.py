"""Prints Spin's result for each configuration of the model: ``python -m tests.model --help``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.model.cases import INVARIANTS, PARTS, Case
from tests.model.checker import Result, check, missing_tools, shortest_way, spin_version
from tests.model.page import HEADS, PAGE, line_of, with_section
from tests.model.timelines import STORIES, story_text

LINE = "{:<72} {:<35} {:>10} {:>11} {:>5} {:>7} {:>6}"


def shown(result: Result) -> str:
    """Return a line of the table."""
    found = f"violates {INVARIANTS.get(result.violated, '?')}" if result.violated else "ok"
    return LINE.format(
        result.case.name,
        found if result.as_expected else f"UNEXPECTED {found}",
        result.states,
        result.transitions,
        result.depth,
        f"{result.seconds:.1f}",
        f"{result.memory_mib:.0f}",
    )


def write_timelines() -> None:
    """Write the counter-examples into the page."""
    stories = []
    for story in STORIES:
        with tempfile.TemporaryDirectory() as folder:
            stories.append(story_text(story, shortest_way(story.case, Path(folder))))
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_section(text, "timelines", "\n" + "\n".join(stories) + "\n"), encoding="utf-8")


def write_table(part: str, results: Sequence[Result]) -> None:
    """Write a table into the page."""
    body = HEADS[part] + "".join(map(line_of, results))
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_section(text, part, f"\n{body}\n"), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Check the selected cases; return 0 when all results are as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS), help="which tables; default: all")
    parser.add_argument("--long", action="store_true", help="the large configurations too: minutes each")
    parser.add_argument("-k", metavar="TEXT", default="", help="only cases with this text in their name")
    parser.add_argument("--write", action="store_true", help="write the results into tests/model/README.md")
    options = parser.parse_args(arguments)
    if missing := missing_tools():
        parser.error(f"not installed: {', '.join(missing)}")
    sys.stdout.write(f"Spin {spin_version()}\n")
    good = True
    for part in options.parts or PARTS:
        cases = [case for case in PARTS[part] if options.k in case.name and (options.long or not case.is_long)]
        sys.stdout.write("\n" + LINE.format(part, "result", "states", "transitions", "depth", "seconds", "MiB") + "\n")
        results = [check_and_print(case) for case in cases]
        good = good and all(result.as_expected for result in results)
        if options.write:
            write_table(part, results)
    if options.write:
        write_timelines()
    return 0 if good else 1


def check_and_print(case: Case) -> Result:
    """Check a case and print its line."""
    with tempfile.TemporaryDirectory() as folder:
        result = check(case, Path(folder))
    sys.stdout.write(shown(result) + "\n")
    sys.stdout.flush()
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
