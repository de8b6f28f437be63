"""A real Prometheus scrapes a real reader and a real worker: every panel has data, and alerts fire in their time."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from refresher.embedded import GuardedProcess, free_port
from refresher.feed.state import FeedState, publishing
from tests.acceptance.conftest import ROOT, System
from tests.support.monitored_system import Prometheus
from tests.support.waiting import eventually

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "refresher.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = sorted({target["expr"] for panel in PANELS for target in panel["targets"]})
# Each of these has data only after a fault of its own.
ONLY_AFTER_A_FAULT = (
    "xfetch_stale_write_rejected_total",
    "xfetch_refresh_skipped_total",
    "xfetch_refresh_dropped_total",
    "xfetch_trigger_failed_total",
    "cache_unreadable_total",
    "refresher_messages_dropped_total",
    "ALERTS",
)

# Threads share waits, and two processes meet in their claims.
READER = """
import os, sys, threading, time
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector
if os.fork():
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    start_http_server(int(sys.argv[1]), addr="127.0.0.1", registry=registry)
from api_client import CacheClient
client = CacheClient.from_env()
def read(offset):
    for round in range(1_000_000):
        if round % 50 == 0:
            client.invalidate("short_lived", {"key": "k0"})
        client.get("short_lived", {"key": f"k{round % 4}"}, default=None)
        client.get("fails_half_of_the_time", {"key": f"f{round // 20}", "seed": 3}, default=None)
        time.sleep(0.02)
for offset in range(4):
    threading.Thread(target=read, args=(offset,)).start()
"""


@pytest.fixture
def scraped(system: System, tmp_path: Path) -> Iterator[tuple[Prometheus, GuardedProcess]]:
    """A Prometheus, and the worker that it scrapes; readers read all the time."""
    with ExitStack() as stack:
        reader_port, worker_port = free_port(), free_port()
        (counts := tmp_path / "counts").mkdir()
        # A consumer of the graph's changes leaves it.
        system.cache.execute_command(*publishing("cache", FeedState("consumer", waiting=1, oldest=2.0)))
        worker = system.start_worker(
            CACHE_METRICS_PORT=str(worker_port), CACHE_XFETCH_RETRY_MAX="1", CACHE_COOLING="1s", CACHE_COOLING_MAX="2s"
        )
        reader = GuardedProcess.start(
            [sys.executable, "-c", READER, str(reader_port)],
            env={**system.env, "CACHE_METRICS": "true", "PROMETHEUS_MULTIPROC_DIR": str(counts)},
            cwd=ROOT, log_file=tmp_path / "reader.log",
        )  # fmt: skip
        stack.callback(reader.kill)
        jobs = {"application": reader_port, "refresher-workers": worker_port}
        yield Prometheus(stack, tmp_path, jobs, minutes=10), worker


def as_sent(expression: str) -> str:
    """An expression of the dashboard, as Grafana would send it."""
    return expression.replace("$query", ".*").replace("$__rate_interval", "20s")


def test_every_dashboard_panel_has_data_and_a_killed_worker_raises_its_alerts(
    scraped: tuple[Prometheus, GuardedProcess],
) -> None:
    prometheus, worker = scraped
    for expression in EXPRESSIONS:
        if not any(name in expression for name in ONLY_AFTER_A_FAULT):
            eventually(functools.partial(prometheus.query, as_sent(expression)), f"there is data: {expression}")
    for expression in EXPRESSIONS:
        prometheus.query(as_sent(expression))  # those without data are at least understood
    assert "RefresherWorkerGone" not in prometheus.firing()
    worker.kill()
    eventually(lambda: "RefresherWorkerGone" in prometheus.firing(), "the alert fires")
    eventually(lambda: "XFetchNoRefreshCompletes" in prometheus.firing(), "and so does the one on its refreshes")


def test_the_dashboard_is_as_grafana_expects_it() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    identifiers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
    for panel in PANELS:
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH"[: len(panel["targets"])])
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "query"}
