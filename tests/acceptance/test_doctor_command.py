"""``refresher doctor`` as a user runs it: against what is well, against each thing that is not, and watching."""

from __future__ import annotations

import json
import threading
from functools import partialmethod
from typing import Any

import pytest
import redis
from celery.app.control import Inspect
from typer.testing import CliRunner, Result

from api_client.protocol import lease
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.cli.commands import app
from refresher.embedded import ArcadeDbServer, RedisServer, free_port
from refresher.flow.dead_letters import DeadLetters
from refresher.ops.doctor import deployment
from tests.acceptance.conftest import System
from tests.contract.test_dead_letters import a_letter
from tests.support.graph_session import graph_session
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

SECRET = "canary-77b0"
WATCHING = {"REFRESHER_QUERIES": "tests.support.scripted_queries,refresher.watch"}


class Office:
    """A system, and the command."""

    def __init__(self, system: System, patch: pytest.MonkeyPatch) -> None:
        self.system, self._patch = system, patch
        patch.setattr(deployment, "TIMEOUT_SECONDS", 10.0)  # a busy machine shall not meet it
        patch.setattr(deployment, "ANSWER_SECONDS", 0.1)  # there is no worker to wait for

    def start_worker(self, **changes: str) -> None:
        self.system.start_worker(**changes)
        # It takes its time on a busy machine; when it has replied, no other is waited for.
        self._patch.setattr(deployment, "ANSWER_SECONDS", MAX_WAIT_SECONDS)
        self._patch.setattr(Inspect, "__init__", partialmethod(Inspect.__init__, limit=1))

    def run(self, *arguments: str, **changes: str) -> Result:
        return CliRunner().invoke(app, ["doctor", *arguments], env={**self.system.env, **changes})

    def told(self, *arguments: str, exit_code: int = 0, **changes: str) -> Any:
        done = self.run(*arguments, "--json", **changes)
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout)

    def levels(self, exit_code: int = 0, **changes: str) -> dict[str, str]:
        return {one["check"]: one["level"] for one in self.told(exit_code=exit_code, **changes)["findings"]}

    def finding(self, check: str, exit_code: int = 0, **changes: str) -> tuple[str, str, str]:
        (found,) = [one for one in self.told(exit_code=exit_code, **changes)["findings"] if one["check"] == check]
        return found["level"], found["said"], found["mend"]


@pytest.fixture
def office(system: System, monkeypatch: pytest.MonkeyPatch) -> Office:
    return Office(system, monkeypatch)


def test_what_is_well_is_said_line_by_line(office: Office) -> None:
    office.start_worker()
    office.system.cache.config_set("maxmemory", "100mb")
    assert office.levels() == {
        "rights": "ok", "cache": "ok", "eviction": "warning", "clock": "ok", "notifications": "ok", "lease steps": "ok",
        "readers": "warning", "entries": "ok", "refreshes": "ok", "tags": "ok", "dead letters": "ok", "broker": "ok",
        "broker's memory": "warning", "workers": "ok", "queries": "ok", "budgets": "ok", "graph": "ok",
    }  # fmt: skip
    done = office.run()
    assert done.exit_code == 0
    assert "ok       workers: 1 consume: worker-1@test\n" in done.output
    assert (
        "→ one server each: allkeys-lru (volatile-lru with tags) for the cache, noeviction for the broker"
        in done.output
    )
    assert [key for key in office.system.cache.scan_iter() if b":v1:" not in key] == []  # it leaves nothing


def test_without_workers_or_with_those_of_another_namespace_it_says_so(office: Office) -> None:
    level, said, mend = office.finding("workers", exit_code=1)
    assert (level, said) == ("problem", "none replies: nothing is refreshed")
    assert mend.startswith("celery -A refresher worker")
    office.start_worker(CACHE_NAMESPACE="other")
    level, said, _ = office.finding("workers", exit_code=1)
    why = "1 reply, none consumes cache.refresh and cache.refresh-miss"
    assert (level, said) == ("problem", f"{why}: nothing is refreshed")


def test_as_a_reader_it_leaves_out_what_readers_have_nothing_to_do_with(office: Office) -> None:
    ports = {"CACHE_HEALTH_PORT": str(free_port()), "CACHE_METRICS_PORT": str(free_port())}
    told = office.told("--as-reader", exit_code=1, NEO4J_URI="bolt://127.0.0.1:1", REFRESHER_QUERIES="no", **ports)
    problems = [one["check"] for one in told["findings"] if one["level"] == "problem"]
    assert problems == ["workers"]
    checks = {one["check"] for one in told["findings"]}
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
        ("allkeys-lru", "100mb", "eviction", "ok", "allkeys-lru, 104,857,600 bytes"),
        ("allkeys-lru", "100mb", "broker's memory", "problem", "drops queues"),
    ],
)
def test_the_eviction_policy(office: Office, policy: str, bound: str, check: str, level: str, words: str) -> None:
    office.system.cache.config_set("maxmemory", bound)
    office.system.cache.config_set("maxmemory-policy", policy)
    found, said, mend = office.finding(check, exit_code=1)  # there is no worker, either
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
def test_what_can_t_be_reached_is_a_problem_and_shows_no_password(
    office: Office, variable: str, url: str, check: str
) -> None:
    done = office.run("--json", **{variable: url.format(secret=SECRET, port=free_port())})
    assert done.exit_code == 1
    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["check"] == check]
    assert (found["level"], variable in found["said"] + found["mend"]) == ("problem", True)
    assert SECRET not in done.output


def test_what_can_t_be_looked_at_for_want_of_a_right_is_a_warning(office: Office) -> None:
    rights = ["on", f">{SECRET}", "~*", "+@all", "-info", "-evalsha", "-eval", "-zrevrange", "resetchannels"]
    office.system.cache.execute_command("ACL", "SETUSER", "weak", *rights)
    weak = f"redis://weak:{SECRET}@{office.system.env['CACHE_REDIS_URL'].rpartition('@')[2]}"
    levels = office.levels(exit_code=1, CACHE_REDIS_URL=weak)
    looked_at = {check: levels[check] for check in ("rights", "cache", "notifications", "dead letters", "lease steps")}
    assert looked_at == {
        "rights": "problem", "cache": "warning", "notifications": "warning", "dead letters": "warning",
        "lease steps": "problem",
    }  # fmt: skip
    assert levels["clock"] == "ok"


def test_keys_in_quarantine_are_a_warning(office: Office) -> None:
    DeadLetters(office.system.cache, "cache").add(a_letter(1))
    level, said, mend = office.finding("dead letters", exit_code=1)
    assert (level, said, mend) == (
        "warning",
        "open: 1 syntax; 0 of them in quarantine",
        "correct the query's Cypher, restart the workers; then refresher dead list",
    )


@pytest.mark.parametrize(("level", "bound"), [("problem", 1), ("warning", 100_000_000)])
def test_a_full_cache_that_evicts_nothing_is_a_problem(office: Office, level: str, bound: int) -> None:
    office.system.cache.config_set("maxmemory-policy", "noeviction")
    office.system.cache.config_set("maxmemory", bound)
    assert office.levels(exit_code=1)["eviction"] == level


def test_a_full_broker_is_a_problem(office: Office) -> None:
    with RedisServer.start(extra_config={"maxmemory": "1", "maxmemory-policy": "noeviction"}) as full:
        findings = office.told(exit_code=1, CACHE_BROKER_URL=full.url())["findings"]
    said = {one["check"]: (one["level"], one["said"]) for one in findings}
    assert said["broker's memory"][0] == "problem"
    assert "nothing can be published" in said["broker's memory"][1]
    assert said["workers"][0] == "problem"
    assert said["workers"][1].startswith("no reply: it answered")


def test_refreshes_that_wait_for_long_fail_or_were_lost_are_a_warning(office: Office) -> None:
    key, store = make_key("cache", "long_lived", {"key": "a"}, 1), LeaseStore(office.system.cache)
    store.run(lease.claim(key, claim_id="x", seen_token=0, queue_ttl_seconds=60, retention_seconds=60))
    assert office.finding("refreshes", exit_code=1)[:2] == ("ok", "1 queued, 0 running, none for long")
    office.system.cache.hincrby(key.record, "claimed_at", -20_000_000)
    level, said, _ = office.finding("refreshes", exit_code=1)
    assert (level, said.startswith("1 queued, the oldest for ")) == ("warning", True)
    office.system.cache.hset(key.record, "state", "retrying")
    assert office.finding("refreshes", exit_code=1)[1] == "1 failed and will be retried"
    office.system.cache.hset(key.record, "until", 1)
    assert office.finding("refreshes", exit_code=1)[1] == "1 lost: a worker or a message is gone"


def test_a_worker_of_this_host_is_asked_for_its_health_and_its_metrics(office: Office) -> None:
    ports = {"CACHE_HEALTH_PORT": str(free_port()), "CACHE_METRICS_PORT": str(free_port())}
    levels = office.levels(exit_code=1, **ports)
    assert (levels["worker here"], levels["metrics here"]) == ("problem", "warning")
    office.start_worker(**ports)
    eventually(lambda: office.run(**ports).exit_code == 0, "all is well")
    levels = office.levels(**ports)
    assert (levels["worker here"], levels["metrics here"]) == ("ok", "ok")
    swapped = {"CACHE_METRICS_PORT": ports["CACHE_HEALTH_PORT"]}
    assert office.finding("metrics here", **swapped)[1].endswith("is not a worker")


def test_a_wrong_setting_is_one_error(office: Office) -> None:
    done = office.run(CACHE_COOLING="0")
    assert done.exit_code == 1
    assert "CACHE_COOLING" in str(done.exception)


def watched_nodes(graph: ArcadeDbServer) -> int:
    with graph_session(graph) as session:
        return int(session.run("MATCH (w:RefresherWatch) RETURN count(w) AS n").single(strict=True)["n"])


def test_a_watch_writes_invalidates_reads_judges_and_leaves_no_node(office: Office, arcadedb: ArcadeDbServer) -> None:
    office.start_worker(**WATCHING)
    told = office.told("--watch", "--seconds", "5", **WATCHING)
    watch = told["watch"]
    assert (told["ok"], watch["broken"], watch["failures"]) == (True, [], {})
    assert watch["soft_invalidations"] >= 1
    assert watch["hard_invalidations"] >= 1
    assert watch["states"]["fresh"] > 0
    assert watched_nodes(arcadedb) == 0
    done = office.run("--watch", "--seconds", "2", **WATCHING)
    assert done.exit_code == 0
    assert "no read that began after an invalidation got an older value as fresh" in done.output


def test_a_watch_sees_a_cache_that_keeps_old_values(office: Office) -> None:
    """A cache that loses invalidations: each is undone behind the writer's back."""
    office.start_worker(**WATCHING)
    entries: dict[bytes, bytes] = {}
    over = threading.Event()

    def put_back() -> None:
        with redis.Redis.from_url(office.system.env["CACHE_REDIS_URL"]) as cache:
            while not over.wait(0.02):
                for key in cache.scan_iter("cache:e1:*"):
                    if raw := cache.get(key):
                        cache.set(key, entries.setdefault(key, raw), px=60_000)

    thread = threading.Thread(target=put_back)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("refresher.checker.monitor.REPAIR_SECONDS", 0.5)
            told = office.told("--watch", "--seconds", "5", exit_code=1, **WATCHING)
    finally:
        over.set()
        thread.join()
    assert told["ok"] is False
    assert told["watch"]["broken"]


def test_a_watch_that_can_t_be_kept_says_what_to_do(office: Office, arcadedb: ArcadeDbServer) -> None:
    office.start_worker()
    refused = {"REFRESHER_WATCH_USER": "nobody", "REFRESHER_WATCH_PASSWORD": SECRET}
    for changes, words in (
        (refused, "the graph refuses the watch's user"),
        ({}, "no worker knows the query refresher.watch: add refresher.watch"),
    ):
        done = office.run("--watch", **changes)
        assert done.exit_code == 1
        assert f"PROBLEM  watch: {words}" in done.output
        assert SECRET not in done.output
        told = office.told("--watch", exit_code=1, **changes)
        assert (told["watch"], told["findings"][-1]["check"]) == (None, "watch")
        assert watched_nodes(arcadedb) == 0


def test_the_office_closes_its_connections(office: Office) -> None:
    office.run()
    with redis.Redis.from_url(office.system.env["CACHE_REDIS_URL"]) as fresh:
        mine = int(fresh.info("clients")["connected_clients"])
    office.run()
    with redis.Redis.from_url(office.system.env["CACHE_REDIS_URL"]) as fresh:
        assert int(fresh.info("clients")["connected_clients"]) <= mine
