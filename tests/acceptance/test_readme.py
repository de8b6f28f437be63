"""The examples of the README, run unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ROOT, System
from tests.support.graph_session import graph_session
from tests.support.pages import examples_of
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.smoke

# What a newcomer would type to see more than a list of names.
SHOW = "\nimport sys\nsys.stdout.write(repr(friends))\n"


@pytest.fixture
def two_friends(arcadedb: Any) -> Iterator[None]:
    with graph_session(arcadedb) as session:
        session.run("CREATE (:Person {id: 42})-[:KNOWS]->(:Person {id: 1, name: 'Ada'})").consume()
        yield
        session.run("MATCH (p:Person) DETACH DELETE p").consume()


def started(system: System, folder: Path, worker_side: str) -> None:
    (folder / "my_queries.py").write_text(worker_side)
    system.start_worker(REFRESHER_QUERIES="my_queries", PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")


def typed(system: System, folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env=system.env, cwd=folder, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.promise("Contract and operation", "The README's example works as printed")
@pytest.mark.usefixtures("two_friends")
def test_the_readme_example_works_as_printed(system: System, tmp_path: Path) -> None:
    worker_side, reader_side = examples_of("README.md")
    started(system, tmp_path, worker_side)
    assert typed(system, tmp_path, "-c", reader_side + SHOW) == "[{'name': 'Ada'}]"
