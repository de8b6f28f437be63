"""``refresher doctor`` as a user runs it: on a healthy system, on each fault, and with ``--watch``."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from api_client.protocol import lease
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer, free_port
from refresher.flow.dead_letters import DeadLetters
from tests.acceptance.conftest import System
from tests.contract.test_dead_letters import a_letter
from tests.support.command_line import CommandLine
from tests.support.doctor import wait_for_one_worker
from tests.support.graph_session import graph_session
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

SECRET = "canary-77b0"
WATCHING = {"REFRESHER_QUERIES": "tests.support.scripted_queries,refresher.watch"}


class DoctorCommand(CommandLine):
    """`refresher doctor`, run against a system."""

    def __init__(self, system: System, patch: pytest.MonkeyPatch) -> None:
        super().__init__("doctor", system.env)
        self.system, self._patch = system, patch

    def start_worker(self, **changes: str) -> None:
        self.system.start_worker(**changes)
        self.system.until_commands_are_taken()
        wait_for_one_worker(self._patch)

    def levels(self, exit_code: int = 0, **changes: str) -> dict[str, str]:
        return {one["check"]: one["level"] for one in self.run_json(exit_code=exit_code, **changes)["findings"]}

    def finding(self, check: str, exit_code: int = 0, **changes: str) -> tuple[str, str, str]:
        (found,) = [one for one in self.run_json(exit_code=exit_code, **changes)["findings"] if one["check"] == check]
        return found["level"], found["said"], found["mend"]


@pytest.fixture
def doctor(system: System, monkeypatch: pytest.MonkeyPatch, patient_commands: None) -> DoctorCommand:
    return DoctorCommand(system, monkeypatch)


def test_doctor_prints_one_line_per_check_on_a_healthy_system(doctor: DoctorCommand) -> None:
    doctor.start_worker()
    doctor.system.cache.config_set("maxmemory", "100mb")
    assert doctor.levels() == {
        "rights": "ok", "cache": "ok", "eviction": "warning", "clock": "ok", "notifications": "ok", "lease steps": "ok",
        "readers": "warning", "entries": "ok", "refreshes": "ok", "tags": "ok", "dead letters": "ok", "broker": "ok",
        "broker's memory": "warning", "workers": "ok", "queries": "ok", "budgets": "ok", "graph": "ok",
    }  # fmt: skip
    done = doctor.run()
    assert done.exit_code == 0
    assert "ok       workers: 1 consume: worker-1@test\n" in done.output
    assert (
        "→ one server each: allkeys-lru (volatile-lru with tags) for the cache, noeviction for the broker"
        in done.output
    )
    assert [key for key in doctor.system.cache.scan_iter() if b":v1:" not in key] == []  # it leaves nothing


def test_doctor_reports_a_problem_without_workers_of_the_own_namespace(doctor: DoctorCommand) -> None:
    level, said, mend = doctor.finding("workers", exit_code=1)
    assert (level, said) == ("problem", "none replies: nothing is refreshed")
    assert mend.startswith("celery -A refresher worker")
    doctor.start_worker(CACHE_NAMESPACE="other")
    level, said, _ = doctor.finding("workers", exit_code=1)
    why = "1 reply, none consumes cache.refresh and cache.refresh-miss"
    assert (level, said) == ("problem", f"{why}: nothing is refreshed")


def test_doctor_as_reader_skips_the_checks_that_do_not_concern_readers(doctor: DoctorCommand) -> None:
    ports = {"CACHE_HEALTH_PORT": str(free_port()), "CACHE_METRICS_PORT": str(free_port())}
    report = doctor.run_json(
        "--as-reader", exit_code=1, NEO4J_URI="bolt://127.0.0.1:1", REFRESHER_QUERIES="no", **ports
    )
    problems = [one["check"] for one in report["findings"] if one["level"] == "problem"]
    assert problems == ["workers"]
    checks = {one["check"] for one in report["findings"]}
    assert {"rights", "cache", "lease steps", "broker"} <= checks
    assert checks.isdisjoint(
        {"readers", "entries", "refreshes", "tags", "dead letters", "queries", "budgets", "graph", "worker here"}
    )


@pytest.mark.parametrize(
    ("policy", "bound", "check", "level", "words"),
    [
        ("volatile-ttl", "100mb", "eviction", "problem", "drops the lease records first"),
        ("allkeys-lru", "0", "eviction", "warning", "has no maxmemory"),
        ("noeviction", "100mb", "eviction", "warning", "every refresh fails"),
        ("noeviction", "1", "eviction", "problem", "every refresh fails"),
        ("allkeys-lru", "100mb", "eviction", "ok", "allkeys-lru, 104,857,600 bytes"),
        ("allkeys-lru", "100mb", "broker's memory", "problem", "drops queues"),
    ],
)
def test_doctor_evaluates_eviction_policy_and_maxmemory(
    doctor: DoctorCommand, policy: str, bound: str, check: str, level: str, words: str
) -> None:
    doctor.system.cache.config_set("maxmemory", bound)
    doctor.system.cache.config_set("maxmemory-policy", policy)
    found, said, mend = doctor.finding(check, exit_code=1)  # there is no worker, either
    assert (found, words in said, bool(mend)) == (level, True, level != "ok")


@pytest.mark.parametrize(
    ("variable", "url", "check"),
    [
        ("CACHE_REDIS_URL", "redis://:{secret}@127.0.0.1:{port}/0", "cache"),
        ("CACHE_BROKER_URL", "redis://:{secret}@127.0.0.1:{port}/0", "broker"),
        ("CACHE_BROKER_URL", "amqp://me:{secret}@127.0.0.1:{port}//", "broker"),
        ("NEO4J_URI", "bolt://127.0.0.1:{port}", "graph"),
        ("REFRESHER_QUERIES", "no_such_module", "queries"),
    ],
)
def test_doctor_reports_an_unavailable_dependency_as_a_problem_without_its_password(
    doctor: DoctorCommand, variable: str, url: str, check: str
) -> None:
    done = doctor.run("--json", **{variable: url.format(secret=SECRET, port=free_port())})
    assert done.exit_code == 1
    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["check"] == check]
    assert (found["level"], variable in found["said"] + found["mend"]) == ("problem", True)
    assert SECRET not in done.output


def test_doctor_warns_where_a_missing_permission_prevents_a_check(doctor: DoctorCommand) -> None:
    rights = ["on", f">{SECRET}", "~*", "+@all", "-info", "-evalsha", "-eval", "-zrevrange", "resetchannels"]
    doctor.system.cache.execute_command("ACL", "SETUSER", "weak", *rights)
    weak = f"redis://weak:{SECRET}@{doctor.system.env['CACHE_REDIS_URL'].rpartition('@')[2]}"
    levels = doctor.levels(exit_code=1, CACHE_REDIS_URL=weak)
    checked = {check: levels[check] for check in ("rights", "cache", "notifications", "dead letters", "lease steps")}
    assert checked == {
        "rights": "problem", "cache": "warning", "notifications": "warning", "dead letters": "warning",
        "lease steps": "problem",
    }  # fmt: skip
    assert levels["clock"] == "ok"


def test_doctor_warns_of_open_dead_letters(doctor: DoctorCommand) -> None:
    DeadLetters(doctor.system.cache, "cache").add(a_letter(1))
    level, said, mend = doctor.finding("dead letters", exit_code=1)
    assert (level, said, mend) == (
        "warning",
        "open: 1 syntax; 0 of them in quarantine",
        "correct the query's Cypher, and restart the workers; then refresher dead list",
    )


def test_doctor_reports_a_full_broker_as_a_problem(doctor: DoctorCommand) -> None:
    with RedisServer.start(extra_config={"maxmemory": "1", "maxmemory-policy": "noeviction"}) as full:
        findings = doctor.run_json(exit_code=1, CACHE_BROKER_URL=full.url())["findings"]
    said = {one["check"]: (one["level"], one["said"]) for one in findings}
    assert said["broker's memory"][0] == "problem"
    assert "nothing can be published" in said["broker's memory"][1]
    assert said["workers"][0] == "problem"
    assert said["workers"][1].startswith("no reply: it answered")


def test_doctor_warns_of_refreshes_long_queued_failed_or_lost(doctor: DoctorCommand) -> None:
    key, store = make_key("cache", "long_lived", {"key": "a"}, 1), LeaseStore(doctor.system.cache)
    store.run(lease.claim(key, claim_id="x", seen_token=0, queue_ttl_seconds=60, retention_seconds=60))
    assert doctor.finding("refreshes", exit_code=1)[:2] == ("ok", "1 queued, 0 running, none for long")
    doctor.system.cache.hincrby(key.record, "claimed_at", -20_000_000)
    level, said, _ = doctor.finding("refreshes", exit_code=1)
    assert (level, said.startswith("1 queued, the oldest for ")) == ("warning", True)
    doctor.system.cache.hset(key.record, "state", "retrying")
    assert doctor.finding("refreshes", exit_code=1)[1] == "1 failed and will be retried"
    doctor.system.cache.hset(key.record, "until", 1)
    assert doctor.finding("refreshes", exit_code=1)[1] == "1 lost: a worker or a message is gone"


def test_doctor_probes_health_and_metrics_of_the_worker_on_this_host(doctor: DoctorCommand) -> None:
    ports = {"CACHE_HEALTH_PORT": str(free_port()), "CACHE_METRICS_PORT": str(free_port())}
    levels = doctor.levels(exit_code=1, **ports)
    assert (levels["worker here"], levels["metrics here"]) == ("problem", "warning")
    doctor.start_worker(**ports)
    well: Any = eventually(lambda: (done := doctor.run("--json", **ports)).exit_code == 0 and done, "all is well")
    levels = {one["check"]: one["level"] for one in json.loads(well.stdout)["findings"]}
    assert (levels["worker here"], levels["metrics here"]) == ("ok", "ok")
    swapped = {"CACHE_METRICS_PORT": ports["CACHE_HEALTH_PORT"]}
    assert doctor.finding("metrics here", **swapped)[1].endswith("is not a worker")


def watched_nodes(graph: ArcadeDbServer) -> int:
    with graph_session(graph) as session:
        return int(session.run("MATCH (w:RefresherWatch) RETURN count(w) AS n").single(strict=True)["n"])


def test_doctor_watch_writes_invalidates_reads_checks_and_leaves_no_node(
    doctor: DoctorCommand, arcadedb: ArcadeDbServer
) -> None:
    doctor.start_worker(**WATCHING)
    report = doctor.run_json("--watch", "--seconds", "5", **WATCHING)
    watch = report["watch"]
    assert (report["ok"], watch["broken"], watch["failures"]) == (True, [], {})
    assert watch["soft_invalidations"] >= 1
    assert watch["hard_invalidations"] >= 1
    assert watch["states"]["fresh"] > 0
    assert watched_nodes(arcadedb) == 0
    done = doctor.run("--watch", "--seconds", "2", **WATCHING)
    assert done.exit_code == 0
    assert "no read that began after an invalidation got an older value as fresh" in done.output


def test_doctor_watch_leaves_no_node_when_a_supervisor_ends_it(
    doctor: DoctorCommand, arcadedb: ArcadeDbServer, stack: ExitStack, tmp_path: Path
) -> None:
    doctor.start_worker(**WATCHING)
    command = [sys.executable, "-m", "refresher.cli", "doctor", "--watch", "--seconds", "3600"]
    env = {**os.environ, **doctor.env, **WATCHING}
    watching = GuardedProcess.start(command, env=env, log_file=tmp_path / "watching.log")
    stack.callback(watching.kill)
    eventually(lambda: watched_nodes(arcadedb), "it has created its nodes")
    os.kill(watching.pid, signal.SIGTERM)
    assert watching.wait(MAX_WAIT_SECONDS) is not None
    assert watched_nodes(arcadedb) == 0
    assert "Traceback" not in watching.tail_of_log()


def test_doctor_watch_detects_a_cache_that_loses_invalidations(doctor: DoctorCommand) -> None:
    """A cache that loses invalidations: each is undone behind the writer's back."""
    doctor.start_worker(**WATCHING)
    entries: dict[bytes, bytes] = {}
    over = threading.Event()

    def put_back() -> None:
        with redis.Redis.from_url(doctor.system.env["CACHE_REDIS_URL"]) as cache:
            while not over.wait(0.02):
                for key in cache.scan_iter("cache:e1:*"):
                    if raw := cache.get(key):
                        cache.set(key, entries.setdefault(key, raw), px=60_000)

    thread = threading.Thread(target=put_back)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("refresher.checker.monitor.REPAIR_SECONDS", 0.5)
            report = doctor.run_json("--watch", "--seconds", "5", exit_code=1, **WATCHING)
    finally:
        over.set()
        thread.join()
    assert report["ok"] is False
    assert report["watch"]["broken"]


def test_doctor_watch_that_cannot_start_reports_the_remedy(doctor: DoctorCommand, arcadedb: ArcadeDbServer) -> None:
    doctor.start_worker()
    refused = {"REFRESHER_WATCH_USER": "nobody", "REFRESHER_WATCH_PASSWORD": SECRET}
    for changes, words in (
        (refused, "the graph refuses the watch's user"),
        ({}, "no worker knows the query refresher.watch: add refresher.watch"),
    ):
        done = doctor.run("--watch", **changes)
        assert done.exit_code == 1
        assert f"PROBLEM  watch: {words}" in done.output
        assert SECRET not in done.output
        report = doctor.run_json("--watch", exit_code=1, **changes)
        assert (report["watch"], report["findings"][-1]["check"]) == (None, "watch")
        assert watched_nodes(arcadedb) == 0


def test_doctor_closes_its_connections(doctor: DoctorCommand) -> None:
    doctor.run()
    with redis.Redis.from_url(doctor.system.env["CACHE_REDIS_URL"]) as fresh:
        mine = int(fresh.info("clients")["connected_clients"])
    doctor.run()
    with redis.Redis.from_url(doctor.system.env["CACHE_REDIS_URL"]) as fresh:
        assert int(fresh.info("clients")["connected_clients"]) <= mine
