"""The README's ten lines, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import neo4j
import pytest

from tests.acceptance.conftest import ROOT, System

# What a newcomer would type to see more than a list of names.
SHOW = "\nimport sys\nsys.stdout.write(repr(friends))\n"


@pytest.fixture
def two_friends(arcadedb: Any) -> Iterator[None]:
    driver = neo4j.GraphDatabase.driver(arcadedb.bolt_uri, auth=(arcadedb.user, arcadedb.password))
    with driver, driver.session(database=arcadedb.database) as session:
        session.run("CREATE (:Person {id: 42})-[:KNOWS]->(:Person {id: 1, name: 'Ada'})").consume()
        yield
        session.run("MATCH (p:Person) DETACH DELETE p").consume()


@pytest.mark.usefixtures("two_friends")
def test_the_example_works_as_it_is_printed(system: System, tmp_path: Path) -> None:
    worker_side, reader_side, typed_side = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    (tmp_path / "my_queries.py").write_text(worker_side)
    system.start_worker(REFRESHER_QUERIES="my_queries", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")

    for lines, shown in ((reader_side, "[{'name': 'Ada'}]"), (typed_side, "[Friend(name='Ada')]")):
        reader = subprocess.run(
            [sys.executable, "-c", lines + SHOW], env=system.env, cwd=tmp_path, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert reader.stdout == shown, reader.stderr
    assert system.client().get_entry("friends_of", {"person_id": 42}).degree == 1
