"""A pytest run that tries its tests on one mutant of a script after another: ``python -m tests.mutation.trial``.

The tests are collected once, and servers started once. For each mutant they run until one fails: first those that
killed the last ones of the same script, then the quick ones. A test that never runs the script is left out. Before
any mutant the tests must pass on the scripts as they are.

Input is a JSON object on stdin: {"tests": [arguments of pytest], "shard": [which, of how many], "doubted": [[script,
name], …]}: a doubted mutant counts as killed only if its killer is green on the scripts as they are, and red again. It
should survive, so all tests would run on it: those that take seconds do so in `make test-long` alone.
Output is one JSON object per line: {"passing": number of tests}, then {"script", "name", "killer" (null: it survived)}.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest
from _pytest.runner import runtestprotocol  # what reruns of a test are made of, in pytest's own plugins too

from api_client.transport import scripts as lease_store
from api_client.transport.scripts import SCRIPTS
from tests.mutation.lua_mutants import Mutant, mutants
from tests.support.requirements import IS_LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER: Final = files("api_client.protocol") / "lua"
PARTS: Final = ("prelude", *SCRIPTS)
QUICK_SECONDS: Final = 1.0


def all_mutants() -> list[Mutant]:
    """Return the mutants of all scripts, in the order of their names."""
    return [mutant for part in PARTS for mutant in mutants(part, text_of(part))]


def text_of(part: str) -> str:
    """Return the text of one file."""
    return (FOLDER / f"{part}.lua").read_text(encoding="utf-8")


@dataclass
class Trial:
    """The plugin. ``scripts_of`` maps a test to the scripts that it ran, ``killers`` a script to its latest killers."""

    shard: tuple[int, int]
    doubted: set[tuple[str, str]]
    scripts_of: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    seconds_of: dict[str, float] = field(default_factory=dict)
    killers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        if failures := [why for name in items if (why := self._failure_of(items, name))]:
            pytest.exit("red on the scripts as they are:\n" + "\n".join(failures)[-3_000:], returncode=1)
        emit({"passing": len(items), "seconds": round(sum(self.seconds_of.values()), 1)})
        which, of = self.shard
        for mutant in all_mutants()[which::of]:
            killer = self._killer_of(mutant, items)
            if killer and (mutant.script, mutant.name) in self.doubted and not self._is_sure(mutant, items, killer):
                killer = None
            emit({"script": mutant.script, "name": mutant.name, "killer": killer})
        return True

    def _killer_of(self, mutant: Mutant, items: dict[str, pytest.Item]) -> str | None:
        last = self.killers[mutant.script]
        able = [name for name in items if mutant.script == "prelude" or mutant.script in self.scripts_of[name]]
        if (mutant.script, mutant.name) in self.doubted and not IS_LONG:
            able = [name for name in able if self.seconds_of[name] < QUICK_SECONDS]
        rank = {name: -1 - place for place, name in enumerate(last)}
        for name in sorted(able, key=lambda name: (rank.get(name, 0), self.seconds_of[name])):
            with in_place_of(mutant):
                is_red = bool(self._failure_of(items, name))
            if is_red:
                last[:] = [*(other for other in last if other != name), name]
                return name
        return None

    def _is_sure(self, mutant: Mutant, items: dict[str, pytest.Item], killer: str) -> bool:
        if self._failure_of(items, killer):
            return False
        with in_place_of(mutant):
            return bool(self._failure_of(items, killer))

    def _failure_of(self, items: dict[str, pytest.Item], name: str) -> str:
        """Run the test; return its name and error, nothing where it passes."""
        item = items[name]
        # Session fixtures stay as long as there is a next item.
        following = next((other for other in items.values() if other is not item), None)
        item._initrequest()  # type: ignore[attr-defined]
        item.session._setupstate.teardown_exact(item)
        ran, started = set[str](), time.perf_counter()
        with noting(ran):
            reports = runtestprotocol(item, nextitem=following, log=False)
        self.seconds_of.setdefault(name, time.perf_counter() - started)
        self.scripts_of[name] |= ran
        failed = [report for report in reports if report.failed]
        return "\n".join(f"{report.nodeid} ({report.when}): {report.longreprtext}" for report in failed)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            module: Any = item.module  # type: ignore[attr-defined]
            if hasattr(module, "EXAMPLES"):
                # Nothing is shrunk, and two trials play the same examples.
                module.EXAMPLES, module.PHASES, module.IS_LONG = 60, module.PHASES[:1], False


@contextmanager
def noting(ran: set[str]) -> Iterator[None]:
    """Record which scripts are run meanwhile: by their hash, or by their text."""

    def noted(command: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def note(call: Any) -> Any:
            ran.add(call.script)
            return command(call)

        return note

    with (
        patch.object(lease_store, "by_hash", noted(lease_store.by_hash)),
        patch.object(lease_store, "by_text", noted(lease_store.by_text)),
    ):
        yield


@contextmanager
def in_place_of(mutant: Mutant) -> Iterator[None]:
    """Let every store run the mutant meanwhile."""
    texts = {mutant.script: mutant.text}

    def source(name: str) -> str:
        return "\n".join(texts.get(part) or text_of(part) for part in ("prelude", name))

    lease_store.sha_of.cache_clear()
    with patch.object(lease_store, "source", source):
        yield
    lease_store.sha_of.cache_clear()


def emit(line: dict[str, object]) -> None:
    print(json.dumps(line), file=sys.__stdout__, flush=True)


def main() -> int:
    """Run the trial."""
    job = json.load(sys.stdin)
    # In a fixed order, so that two trials of the same mutants kill them by the same tests.
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=900", *job["tests"]]
    with redirect_stdout(sys.stderr):
        return int(
            pytest.main(arguments, plugins=[Trial(tuple(job["shard"]), {tuple(name) for name in job["doubted"]})])
        )


if __name__ == "__main__":
    sys.exit(main())
