"""The rules for Prometheus: valid, tested by promtool, about metrics that exist, and each alert explained."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from api_client.observe.prometheus import PrometheusEvents
from refresher.queries import Registry
from refresher.telemetry.metrics import WorkerGauges
from refresher.telemetry.prometheus import GaugeCollector, PrometheusWorkerEvents
from tests.support.requirements import skip_or_fail

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
ALERT = re.compile(r"- alert: (\w+)")
EXPRESSION_NAMES = re.compile(r"\b((?:cache|xfetch|refresher)_\w+)\b(?!:)")
NOT_A_METRIC = re.compile(r"\b\w+:\w+:\w+\b|\w+:ratio30d")


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        skip_or_fail("promtool is not installed (Debian's package prometheus)")
    return found


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def alerts() -> list[str]:
    return ALERT.findall(text("refresher.alerts.yml"))


@pytest.mark.parametrize(
    "command", [("check", "config", "prometheus.yml"), ("test", "rules", "refresher.tests.yml")], ids=" ".join
)
def test_promtool_accepts_the_rules(promtool: str, command: tuple[str, ...]) -> None:
    done = subprocess.run([promtool, *command], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_each_alert_has_a_case_that_fires_and_one_that_is_silent() -> None:
    tests = text("refresher.tests.yml")
    fires = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", tests))
    assert fires == set(alerts())
    # Silent before its time, or for the query beside the one that it fires for.
    silent = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests))
    beside = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n\s+- exp_labels: \{[^}]*query: bad", tests))
    assert 'query="good"' in tests
    assert silent | beside == set(alerts())


def test_the_page_of_alerts_explains_each_alert_in_the_order_of_the_rules() -> None:
    page = (ROOT / "docs" / "reference" / "alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)`", page, re.MULTILINE) == sorted(set(alerts()), key=alerts().index)


def metrics_of_both_sides() -> set[str]:
    """Return the names of the metrics of readers and workers, without the suffixes of a scrape."""
    readers, workers = CollectorRegistry(), CollectorRegistry()
    PrometheusEvents(readers)
    PrometheusWorkerEvents(workers)
    gauges = WorkerGauges(lambda: 0, list, dict, lambda: 0, lambda: 0.0, Registry())
    workers.register(GaugeCollector(dict, gauges))
    return {metric.name for registry in (readers, workers) for metric in registry.collect()}


@pytest.mark.parametrize("name", ["refresher.rules.yml", "refresher.alerts.yml"])
def test_the_rules_use_only_metrics_that_exist(name: str) -> None:
    expressions = NOT_A_METRIC.sub(
        "", "\n".join(re.findall(r"expr: (.*?)\n +(?:for|labels|- )", text(name), re.DOTALL))
    )
    named = set(EXPRESSION_NAMES.findall(expressions))
    assert len(named) >= 6
    served = metrics_of_both_sides()
    assert {one for one in named if re.sub(r"_(total|sum|count|bucket)$", "", one) not in served} == set()


def test_every_metric_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert {one for one in metrics_of_both_sides() if not re.search(rf"`{one}(_total)?`", page)} == set()
