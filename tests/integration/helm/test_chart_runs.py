"""A real worker and a real Flower, started as the chart would: arguments, variables, queries, probes."""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from refresher.embedded import GuardedProcess, RedisServer, free_port
from tests.support.chart import CHART, container, deployment, environment, of_kind, ports_of, values
from tests.support.http_requests import fetch
from tests.support.waiting import eventually

DEPLOY = CHART.parents[1]
NAME = "keda-redis"
PREFIXED = "flower.urlPrefix=/flower/"


@pytest.fixture
def own_environment(redis_server: RedisServer, tmp_path: Path) -> dict[str, str]:
    """Variables of the test in place of the cluster's: servers, addresses, and the folder of the queries."""
    queries = tmp_path / "queries"
    queries.mkdir()
    for file, source in values(NAME)["queries"]["files"].items():
        (queries / file).write_text(source)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{queries}:{DEPLOY.parent}",
        "CACHE_REDIS_URL": redis_server.url(4),
        "CACHE_BROKER_URL": redis_server.url(5),
        "NEO4J_URI": f"bolt://127.0.0.1:{free_port()}",
        "CACHE_XFETCH_WORKERS": "1",
        "CACHE_HEALTH_ADDRESS": "127.0.0.1",
        "CACHE_HEALTH_PORT": str(free_port()),
        "CACHE_METRICS_ADDRESS": "127.0.0.1",
        "CACHE_METRICS_PORT": str(free_port()),
        "FLOWER_ADDRESS": "127.0.0.1",
        "FLOWER_PORT": str(free_port()),
    }


def started(part: str, own: dict[str, str], folder: Path, *settings: str) -> GuardedProcess:
    rendered = environment(NAME, part, *settings)
    arguments = [word.replace("=/deploy/", f"={DEPLOY}/") for word in container(NAME, part, *settings)["args"]]
    needed = {key: value for key, value in own.items() if key in rendered or not key.startswith(("CACHE", "FLOWER"))}
    return GuardedProcess.start(
        [sys.executable, "-m", *arguments],
        env={**rendered, **needed},
        cwd=folder,
        log_file=folder / f"{part}.log",
    )


@pytest.fixture
def worker(own_environment: dict[str, str], tmp_path: Path) -> Iterator[GuardedProcess]:
    with started("worker", own_environment, tmp_path) as process:
        yield process


@pytest.mark.usefixtures("worker")
def test_a_worker_runs_and_answers_its_probes(own_environment: dict[str, str], tmp_path: Path) -> None:
    manifest, only = deployment(NAME, "worker"), container(NAME, "worker")
    probes = {probe: only[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
    assert {ports_of(manifest)[probe["port"]] for probe in probes.values()} == {values(NAME)["worker"]["healthPort"]}
    port = int(own_environment["CACHE_HEALTH_PORT"])

    def said_by(probe: str) -> tuple[int, dict[str, str]]:
        status, body = fetch(port, probes[probe]["path"])
        return status, json.loads(body)["checks"] if body else {}

    def wrong() -> set[str]:
        return {name for name, said in said_by("readiness")[1].items() if said != "ok"}

    # There is no graph here; everything else works.
    eventually(lambda: wrong() == {"graph"}, "a worker that lacks nothing but a graph")
    assert said_by("readiness")[0] == http.client.SERVICE_UNAVAILABLE
    assert said_by("startup")[0] == said_by("liveness")[0] == http.client.OK
    log = (tmp_path / "worker.log").read_text()
    assert ".> 2024.refresh-miss " in log
    assert ".> 2024.refresh " not in log
    metric = b'xfetch_query_ttl_seconds{query="answer"} 300.0'
    metrics = int(own_environment["CACHE_METRICS_PORT"])
    eventually(lambda: metric in fetch(metrics, "/metrics")[1], "the query's metrics")


def test_flower_runs_and_requires_the_password(own_environment: dict[str, str], tmp_path: Path) -> None:
    port, only = int(own_environment["FLOWER_PORT"]), container(NAME, "flower", PREFIXED)
    paths = {only[f"{probe}Probe"]["httpGet"]["path"] for probe in ("liveness", "readiness")}
    assert paths == {"/flower/healthcheck"}
    with started("flower", own_environment, tmp_path, PREFIXED):
        eventually(lambda: fetch(port, *paths)[0] == http.client.OK, "Flower")
        assert fetch(port, "/flower/")[0] == http.client.UNAUTHORIZED
        assert fetch(port, "/flower/", credentials="looker:wrong")[0] == http.client.UNAUTHORIZED
        assert fetch(port, "/flower/", credentials="other:of-a-test")[0] == http.client.OK
        [scraped] = [
            one for one in of_kind(NAME, "PodMonitor", PREFIXED) if one["metadata"]["name"].endswith("-flower")
        ]
        [end] = scraped["spec"]["podMetricsEndpoints"]
        assert fetch(port, end["path"])[0] == http.client.OK


def test_keda_needs_only_the_permissions_that_the_readme_grants(redis_server: RedisServer) -> None:
    [rights] = re.findall(r"`user scaler on #… (.*?)`", (CHART / "README.md").read_text())
    [trigger] = [one for one in of_kind("keda-redis", "ScaledObject")[0]["spec"]["triggers"] if one["name"] == "misses"]
    queue = trigger["metadata"]["listName"]
    with redis.Redis.from_url(redis_server.url(6)) as owner:
        owner.rpush(queue, "a", "b")
        owner.execute_command("ACL", "SETUSER", "scaler", "on", ">p", *rights.replace("cache.", "2024.").split())
        try:
            url = redis_server.url(6).replace("//:", "//scaler:").replace(f":{redis_server.password}@", ":p@")
            with redis.Redis.from_url(url) as scaler:
                # As KEDA's scaler does: check the key's type, then its length.
                script = "redis.call('type', KEYS[1]); return redis.call('llen', KEYS[1])"
                assert scaler.ping()
                assert scaler.eval(script, 1, queue) == 2
                for refused in (("LPOP", queue), ("RPUSH", queue, "c"), ("TYPE", "other"), ("KEYS", "*")):
                    with pytest.raises(redis.exceptions.NoPermissionError):
                        scaler.execute_command(*refused)
        finally:
            owner.execute_command("ACL", "DELUSER", "scaler")
            owner.delete(queue)
