"""The examples of guides that need no worker and no graph, unchanged."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from api_client import EntryState, get_cached
from refresher.embedded import RedisServer
from refresher.testing import InlineCache
from tests.support.pages import examples_of
from tests.support.waiting import MAX_WAIT_SECONDS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(redis_server: RedisServer) -> Iterator[InlineCache]:
    with InlineCache(redis_url=redis_server.url(0)) as cache:
        cache.answer("friends_of", ["Ada", "Grace"], ttl="5m", grace="1h")
        cache.answer("city_of", "London", ttl="5m", grace="1h")
        yield cache


def test_the_examples_of_the_reading_guide_work(cache: InlineCache, tmp_path: Path) -> None:
    (tmp_path / "reading.py").write_text(
        "\n".join(examples_of("docs/how-to/read.md") + examples_of("docs/how-to/invalidate.md"))
    )
    names = runpy.run_path(str(tmp_path / "reading.py"))
    assert names["page"](cache.client) == "London: Ada, Grace"
    assert names["many"](cache.client) == ["'London'", "['Ada', 'Grace']"]
    cache.answer("friends_of", ["Ada"], ttl="5m", grace="1h")
    generations = names["saved"](cache.client)
    assert names["shown"](cache.client, generations) == ["Ada"]


class Colleagues:
    """The graph of a transaction: Ada works with Grace."""

    def run(self, query: str, id: int) -> Self:
        return self

    def data(self) -> list[dict[str, Any]]:
        return [{"id": 7, "name": "Grace"}]


def test_the_examples_of_the_invalidation_guide_work(redis_server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "invalidating.py").write_text("\n".join(examples_of("docs/how-to/invalidate.md")))
    names = runpy.run_path(str(tmp_path / "invalidating.py"))
    with InlineCache(redis_url=redis_server.url(0), tx=Colleagues()) as cache:
        assert [row["name"] for row in get_cached("colleagues_of", {"person_id": 42})] == ["Grace"]
        names["renamed"](8)
        assert cache.client.get_entry("colleagues_of", {"person_id": 42}).state is EntryState.FRESH
        names["renamed"](7)
        assert cache.client.get_entry("colleagues_of", {"person_id": 42}).state is EntryState.STALE


READER_ONLY = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"neo4j", "typer", "rich", "flower"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
"""A pytest plugin: an environment as `refresher[testing]` makes it."""


def test_the_testing_guide_s_example_passes_without_a_driver(tmp_path: Path) -> None:
    (tmp_path / "reader_only.py").write_text(READER_ONLY)
    of_the_application, _ = examples_of("docs/how-to/test.md")
    (tmp_path / "test_page.py").write_text(of_the_application)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "reader_only", "test_page.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}, capture_output=True, text=True,
        timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout + done.stderr
