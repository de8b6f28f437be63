"""The tutorial's application, through what its page describes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import blocks_of
from tests.support.waiting import MAX_WAIT_SECONDS, eventually
from tests.support.watched_command import READY, Dev
from tests.support.web_server import EXAMPLES, WebServer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "tutorial", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def dev(folder: Path) -> Iterator[Dev]:
    running = Dev(folder.parent, "suggestions", "--sample")
    yield running
    running.kill(MAX_WAIT_SECONDS)


@pytest.mark.promise("Contract and operation", "The tutorial's application behaves as its page says")
@pytest.mark.timeout(5 * MAX_WAIT_SECONDS)
def test_the_tutorial_application_behaves_as_its_page_says(dev: Dev, folder: Path) -> None:
    dev.wait_for(READY)
    long = {"CACHE_REDIS_TIMEOUT": "20s", "STAMPEDE_WAIT_TIMEOUT_MS": f"{1_000 * MAX_WAIT_SECONDS:.0f}"}
    environ = dev.environ() | long
    server = WebServer.start("uvicorn app:app", environ, folder.parent / "uvicorn.log", cwd=folder)

    def read() -> dict[str, Any]:
        reply = server.http.get("/people/42/suggestions")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def is_found(state: str) -> bool:
        return bool(read()["state"] == state)

    found = read()
    assert (found["names"], found["state"]) == (["Alan", "Barbara", "Donald"], "miss")
    eventually(lambda: is_found("stale"), "a stale value is served")
    eventually(lambda: is_found("fresh"), "it has been reloaded")

    blocks = [block["text"] for block in blocks_of("docs/tutorial/first-application.md")]
    (kill,) = [text for text in blocks if text.startswith("kill ")]
    subprocess.run(["/bin/sh", "-c", kill], cwd=dev.folder, check=True)
    dev.wait_for("the worker has ended")
    eventually(lambda: is_found("stale"), "a stale value is served")
    age = read()["age_seconds"]
    eventually(lambda: read()["age_seconds"] > age + 1, "it is served on, and grows older")

    (folder / "suggestions.py").touch()
    dev.wait_for("\nready\n")
    eventually(lambda: is_found("fresh"), "a value of the new worker")
    assert server.http.put("/people/42/friends/3").status_code == 204
    written = ["Barbara", "Donald"]
    assert (found := read())["state"] != "fresh" or found["names"] == written
    eventually(lambda: read()["names"] == written, "what the write has changed is read")
    server.stop()
    assert dev.end_by(signal.SIGINT) == 0


def test_the_tutorial_applications_own_tests_pass(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"],
        cwd=folder, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr
