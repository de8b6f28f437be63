"""Starts of a worker: in an application, before its servers, with settings of its own, and with wrong ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from celery import Celery

from refresher.embedded import free_port
from refresher.settings import WorkerSettings
from refresher.worker.app import make_app
from tests.acceptance.conftest import ROOT, System
from tests.servers.restarts import restart
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

SECRET = "canary-5c2592d9"
CANARY = "c4nary-s3cret"
STARTS = {
    "worker": ["-m", "celery", "-A", "refresher", "worker"],
    "flower": ["-m", "celery", "-A", "refresher", "flower"],
    "installed": ["-m", "celery", "-A", "tests.support.host_app", "worker"],
    "status": ["-m", "refresher.cli", "status"],
    "doctor": ["-m", "refresher.cli", "doctor"],
}
WRONG = {
    "CACHE_REDIS_URL": f"redis://:{CANARY}@h:notaport/0",
    "CACHE_BROKER_URL": f"redis://:{CANARY}@h:x/0",
    "CELERY_BROKER_URL": f"amqp://u:{CANARY}@h:x//",
    "NEO4J_URI": f"bolt://u:{CANARY}@h:99999",
}


def test_a_worker_of_an_application_runs_its_tasks_and_refreshes(system: System) -> None:
    worker = system.start_worker("-c", "1", app="tests.support.host_app", C_FORCE_ROOT="1")  # it accepts pickle
    with Celery("publisher", broker=system.env["CACHE_BROKER_URL"], set_as_current=False) as publisher:
        # As the application sends it: pickled, with callbacks, to its default queue.
        mark = publisher.signature("host.mark", ("first",), serializer="pickle", queue="host.work")
        mark.apply_async(link=publisher.signature("host.mark", ("second",), immutable=True, serializer="pickle"))
        eventually(lambda: system.control.lrange("host", 0, -1) == ["first", "second"], "both have run")

        client = system.client()
        assert client.get("long_lived", {"key": "a"})["load"] == 1
        # A retry goes through the app's broker and back, past the guard.
        system.control.rpush("script:b", *["fail"] * 3)
        assert client.get("long_lived", {"key": "b"})["load"] == 4

        publisher.send_task("refresher.refresh", args=(), kwargs={"key": "x"}, queue="host.work")
        publisher.send_task("host.no_such_task", queue="host.work", serializer="json")
        assert client.get("long_lived", {"key": "c"})["load"] == 1
    eventually(lambda: "its arguments are not one" in worker.log_file.read_text(), "the guard is there, for ours")
    eventually(lambda: "unregistered task" in worker.log_file.read_text(), "the rest is left to Celery")
    assert worker.poll() is None


def test_a_worker_starts_without_cache_and_graph_and_logs_both(system: System) -> None:
    worker = system.start_worker(
        NEO4J_URI=f"bolt://127.0.0.1:{free_port()}",
        CACHE_REDIS_URL=f"redis://:{SECRET}@127.0.0.1:{free_port()}/0",
    )
    said = worker.log_file.read_text()
    assert "the cache at CACHE_REDIS_URL=redis://:***@127.0.0.1:" in said
    assert "the graph at NEO4J_URI=bolt://127.0.0.1:" in said
    assert SECRET not in said


def test_a_worker_that_starts_before_its_broker_consumes_once_it_is_there(system: System) -> None:
    system.redis_server.kill()
    worker = system.start_worker(ready=False)
    eventually(lambda: "Trying again in" in worker.log_file.read_text(), "it says that it tries again")
    restart(system.redis_server, keep_data=False)
    assert eventually(lambda: system.client().get("long_lived", {"key": "a"}, timeout=2, default=None), "it consumes")


def test_a_worker_without_registered_queries_logs_an_error(system: System) -> None:
    worker = system.start_worker(REFRESHER_QUERIES="")
    banner, _, logged = worker.log_file.read_text().partition("[tasks]")
    assert re.search(r"^\[[^]]+: ERROR/MainProcess\] no query is registered: ", logged, re.MULTILINE)
    assert "no query is registered" not in banner


@pytest.mark.parametrize("variable", ["CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"])
def test_each_connection_leads_to_the_broker_of_the_settings(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "redis://elsewhere:1/2")
    app = make_app(WorkerSettings(broker_url="redis://127.0.0.1:6399/7"))
    connections = [
        app.connection(), app.connection_for_read(), app.connection_for_write(),
        app.connection_for_write(url="redis://elsewhere:1/2"), app.pool.connection,
    ]  # fmt: skip
    assert [(one.hostname, one.port, one.virtual_host) for one in connections] == [("127.0.0.1", 6399, "7")] * 5
    app.close()


def test_celery_broker_url_is_the_fallback(system: System) -> None:
    url = system.env.pop("CACHE_BROKER_URL")
    system.start_worker("-c", "1", CELERY_BROKER_URL=url)
    assert system.client(CELERY_BROKER_URL=url).get("long_lived", {"key": "a"})["load"] == 1


def run(folder: Path, arguments: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", **environ},
        cwd=folder, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        ("worker", "CACHE_BROKER_URL"), ("flower", "CELERY_BROKER_URL"), ("status", "CACHE_REDIS_URL"),
        ("doctor", "NEO4J_URI"),
    ],
)  # fmt: skip
def test_an_invalid_url_ends_each_command_with_one_error_line(tmp_path: Path, command: str, variable: str) -> None:
    done = run(tmp_path, STARTS[command], **{variable: WRONG[variable]})
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {variable}='")
    assert "is not valid: expected " in line
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["worker", "flower", "doctor"])
def test_a_folder_that_shadows_the_reader_package_is_named_in_the_error(tmp_path: Path, command: str) -> None:
    other = tmp_path / "api_client" / "__init__.py"
    other.parent.mkdir()
    other.write_text("")
    done = run(tmp_path, STARTS[command], PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode != 0
    assert f"api_client is {other}, and not the package of that name" in done.stderr


@pytest.mark.parametrize("code", ["0", "'bye'"])
def test_a_query_module_that_exits_is_named_and_the_worker_ends_with_an_error(tmp_path: Path, code: str) -> None:
    (tmp_path / "exiting_queries.py").write_text(f"import sys\nsys.exit({code})\n")
    done = run(tmp_path, STARTS["worker"], REFRESHER_QUERIES="exiting_queries")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "error: REFRESHER_QUERIES='exiting_queries' is not valid: importing it failed with SystemExit"
    )


def test_an_applications_celery_app_gets_a_configuration_error_as_an_exception(tmp_path: Path) -> None:
    done = run(
        tmp_path, STARTS["installed"], CACHE_BROKER_URL="redis://h", CACHE_REDIS_URL=f"redis://:{CANARY}@h:x/0",
    )  # fmt: skip
    assert done.returncode != 0
    assert "CACHE_REDIS_URL='redis://***@h:***' is not valid" in done.stderr
    assert CANARY not in done.stdout + done.stderr
