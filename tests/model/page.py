"""The parts of this folder's README that are made from Spin's output: state space tables and timelines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.model.cases import INVARIANTS
from tests.model.checker import Result

PAGE: Final = Path(__file__).with_name("README.md")
NUMBERS: Final = "states | transitions | depth |"
_UPHELD: Final = (
    f"| configuration | what happens in it | result | {NUMBERS}\n| --- | --- | --- | ---: | ---: | ---: |\n"
)
_BROKEN: Final = f"| broken variant | what is broken | breaks | {NUMBERS}\n| --- | --- | --- | ---: | ---: | ---: |\n"
HEADS: Final = {
    "upheld": _UPHELD,
    "broken": _BROKEN,
    "tags": _UPHELD,
    "tags-broken": _BROKEN,
    "feed": _UPHELD,
    "feed-broken": _BROKEN,
    "rows": f"| commit rule | token | what happens | result | {NUMBERS}\n"
            "| --- | --- | --- | --- | ---: | ---: | ---: |\n",
}  # fmt: skip


def line_of(result: Result) -> str:
    """Return a result's line of its table: what is the same on every machine."""
    case = result.case
    found = INVARIANTS[result.violated] if result.violated else "ok"
    if not case.what:
        found = "**violated**" if result.violated else "ok"
    what = f" {case.what} |" if case.what else ""
    name = case.name.replace(">=", "≥")
    return f"| {name} |{what} {found} | {result.states:,} | {result.transitions:,} | {result.depth} |\n"


def section(text: str, name: str) -> str:
    """Return what stands on the page between the marks of ``name``."""
    return _found(text, name)[2]


def with_section(text: str, name: str, body: str) -> str:
    """Return the page with another body between the marks of ``name``."""
    found = _found(text, name)
    return text[: found.start(2)] + body + text[found.end(2) :]


def _found(text: str, name: str) -> re.Match[str]:
    found = re.search(rf"(<!-- made: {name} -->\n)(.*?)(<!-- end of {name} -->)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{PAGE.name} has no part {name}")
    return found
