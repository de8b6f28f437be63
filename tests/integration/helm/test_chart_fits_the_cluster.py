"""The chart's network policies, and its configuration of KEDA, Prometheus and Grafana."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from api_client.config import broker as broker_settings
from api_client.config.redis_url import Topology, read_url
from tests.support.chart import CHART, NAMESPACE, VALUES, environment, of_kind, values
from tests.support.requirements import run, tool

DEPLOY = CHART.parents[1]
STANDARD_PORTS = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}


def ports_of_url(url: str) -> set[int]:
    """Return the ports that a URL leads to, parsed independently of the chart."""
    if url.startswith(("redis", "rediss")) and read_url(url).topology is not Topology.SINGLE:
        return {port for _, port in read_url(url).members}
    parts = urlsplit(url)
    return {parts.port or STANDARD_PORTS.get(parts.scheme, 7687)}


def egress_of(name: str, part: str) -> list[tuple[frozenset[int], Any]]:
    """Return ports and peers of each egress rule of a component."""
    [policy] = [one for one in of_kind(name, "NetworkPolicy") if one["metadata"]["name"].endswith(f"-{part}")]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    return [
        (frozenset(port["port"] for port in rule["ports"]), rule.get("to", [])) for rule in policy["spec"]["egress"]
    ]


@pytest.mark.parametrize("name", [name for name in VALUES if name != "cluster-oauth"])
def test_workers_have_egress_to_their_servers_only(name: str) -> None:
    said, environ = values(name), environment(name, "worker")
    urls = {"cache": "CACHE_REDIS_URL", "broker": "CACHE_BROKER_URL", "graph": "NEO4J_URI"}
    ports = {part: set(said[part]["ports"]) or ports_of_url(environ[url]) for part, url in urls.items()}
    assert all(ports_of_url(environ[url]) <= ports[part] for part, url in urls.items())
    policy = said["networkPolicy"]
    more = [(frozenset(port["port"] for port in rule["ports"]), rule["to"]) for rule in policy["workerEgress"]]
    dns = (frozenset(policy["dns"]["ports"]), policy["dns"]["peers"])
    servers = [(frozenset(ports[part]), said[part]["peers"]) for part in urls]
    assert egress_of(name, "worker") == [dns, *servers, *more]
    if said["flower"]["enabled"]:
        assert egress_of(name, "flower") == [dns, servers[1]]


def test_egress_includes_cluster_nodes_and_the_oauth_provider() -> None:
    chosen = ("networkPolicy.enabled=true",)
    worker, flower = of_kind("cluster-oauth", "NetworkPolicy", *chosen)
    assert {port["port"] for rule in worker["spec"]["egress"] for port in rule["ports"]} == {53, 7000, 7001, 6380, 7687}
    assert {port["port"] for rule in flower["spec"]["egress"] for port in rule["ports"]} == {53, 6380, 443}
    # No ingress is allowed.
    assert "ingress" not in {*worker["spec"], *flower["spec"]}


def test_ingress_is_limited_to_prometheus_and_flower_s_users() -> None:
    said = values("keda-redis")["networkPolicy"]
    monitoring, flower_users = said["metricsFrom"], said["flowerFrom"]
    policies = {one["metadata"]["name"]: one["spec"]["ingress"] for one in of_kind("keda-redis", "NetworkPolicy")}
    assert policies == {
        "graph-cache-worker": [{"ports": [{"protocol": "TCP", "port": "metrics"}], "from": monitoring}],
        "graph-cache-flower": [{"ports": [{"protocol": "TCP", "port": "http"}], "from": [*flower_users, *monitoring]}],
    }


@pytest.mark.parametrize("name", ["keda-redis", "keda-sentinel", "rabbitmq"])
def test_keda_scales_by_the_queues_that_the_workers_consume(name: str) -> None:
    said = values(name)
    [scaled] = of_kind(name, "ScaledObject")
    triggers = {trigger["name"]: trigger for trigger in scaled["spec"]["triggers"]}
    queues = {"misses": broker_settings.miss_queue, "refreshes": broker_settings.refresh_queue}
    url = environment(name, "worker")["CACHE_BROKER_URL"]
    assert triggers.keys() - {"lead-time"} == set(said["worker"]["queues"])
    for which in said["worker"]["queues"]:
        metadata = triggers[which]["metadata"]
        assert metadata.get("listName", metadata.get("queueName")) == queues[which](said["namespace"], url)
        assert metadata.get("listLength", metadata.get("value")) == str(said["autoscaling"]["keda"]["queue"][which])
        [authentication] = of_kind(name, "TriggerAuthentication")
        assert triggers[which]["authenticationRef"]["name"] == authentication["metadata"]["name"]
    if name == "keda-redis":
        assert triggers["misses"]["metadata"]["databaseIndex"] == urlsplit(url).path.strip("/") == "3"
    if name == "keda-sentinel":
        master, database = urlsplit(url).path.strip("/").split("/")
        assert triggers["misses"]["type"] == "redis-sentinel"
        assert triggers["misses"]["metadata"]["sentinelMaster"] == master
        assert triggers["misses"]["metadata"]["databaseIndex"] == database


def test_keda_can_use_an_existing_trigger_authentication() -> None:
    chosen = ("secrets.scaler=", "autoscaling.keda.queue.triggerAuthentication=ours")
    [trigger] = of_kind("rabbitmq", "ScaledObject", *chosen)[0]["spec"]["triggers"]
    assert trigger["authenticationRef"] == {"name": "ours"}
    assert of_kind("rabbitmq", "TriggerAuthentication", *chosen) == of_kind("rabbitmq", "Secret", *chosen) == []


def test_keda_s_promql_returns_the_wait_of_the_slowest_query(tmp_path: Path) -> None:
    [scaled] = of_kind("keda-redis", "ScaledObject")
    [query] = [one["metadata"]["query"] for one in scaled["spec"]["triggers"] if one["type"] == "prometheus"]
    series = []
    # A query, the seconds that fifteen refreshes of it take each minute, and those that they load; a pod elsewhere.
    for labels, lead, run_seconds in (('query="slow"', 60, 15), ('query="fast"', 6, 3), ('query="none"', 0, 0)):
        for pod in ("a", "b"):
            of = f'{labels},namespace="{NAMESPACE}",pod="graph-cache-worker-{pod}"'
            series += [
                {"series": f"xfetch_refresh_lead_seconds_sum{{{of}}}", "values": f"0+{lead}x10"},
                {"series": f"xfetch_refresh_duration_seconds_sum{{{of}}}", "values": f"0+{run_seconds}x10"},
                {"series": f"xfetch_refresh_lead_seconds_count{{{of}}}", "values": "0x10" if not lead else "0+15x10"},
            ]
    other = 'query="other",namespace="elsewhere",pod="graph-cache-worker-a"'
    series += [
        {"series": f"xfetch_refresh_lead_seconds_{kind}{{{other}}}", "values": "0+900x10"} for kind in ("sum", "count")
    ]
    tests = [
        {"interval": "1m", "input_series": series, "promql_expr_test": [_expects(query, 3)]},
        {"interval": "1m", "input_series": [], "promql_expr_test": [_expects(query, 0)]},
    ]
    (tmp_path / "rules.tests.yml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": tests}))
    done = run(tool("promtool"), "test", "rules", "rules.tests.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def _expects(query: str, seconds: float) -> dict[str, Any]:
    return {"expr": query, "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": seconds}]}


def test_scrape_jobs_have_the_names_that_the_alert_rules_use() -> None:
    jobs, paths = {}, {}
    for monitor in of_kind("keda-redis", "PodMonitor", "flower.urlPrefix=flower"):
        [end] = monitor["spec"]["podMetricsEndpoints"]
        assert end["relabelings"] == [{"targetLabel": "job", "replacement": end["relabelings"][0]["replacement"]}]
        jobs[monitor["metadata"]["name"]] = end["relabelings"][0]["replacement"]
        paths[monitor["metadata"]["name"]] = end["path"]
    assert paths == {"graph-cache-worker": "/metrics", "graph-cache-flower": "/flower/metrics"}
    known = re.findall(r'job="([\w-]+)"', (DEPLOY / "prometheus" / "refresher.alerts.yml").read_text())
    # The application's own scrape job is not the chart's.
    assert set(known) <= {*jobs.values(), "application"}
    by_hand = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert set(jobs.values()) <= {job["job_name"] for job in by_hand["scrape_configs"]}


def test_prometheus_and_grafana_get_the_project_s_own_files() -> None:
    [rule] = of_kind("keda-redis", "PrometheusRule")
    files = [DEPLOY / "prometheus" / f"refresher.{kind}.yml" for kind in ("rules", "alerts")]
    assert rule["spec"]["groups"] == [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    [dashboard] = [one for one in of_kind("keda-redis", "ConfigMap") if one["metadata"]["name"].endswith("-dashboard")]
    assert dashboard["data"]["refresher.json"].rstrip() == (DEPLOY / "grafana" / "refresher.json").read_text().rstrip()
    assert {path.name for path in (CHART / "files").iterdir() if path.is_symlink()} == {
        "refresher.rules.yml", "refresher.alerts.yml", "refresher.json",
    }  # fmt: skip
