"""What the chart says to worker, Flower, KEDA and Prometheus, held against what they understand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import pytest
import yaml
from celery.bin.base import CLIContext
from celery.bin.worker import worker as worker_command
from flower import options as flower_options  # noqa: F401 - its import defines Flower's options
from tornado.options import options

from api_client import broker_settings
from api_client.environment import variable
from api_client.redis_url import Topology, read_url
from refresher.celery_app import make_app
from refresher.settings import WorkerSettings
from tests.support.chart import (
    CHART,
    NAMESPACE,
    VALUES,
    container,
    deployment,
    environment,
    of_kind,
    pod_of,
    values,
)  # fmt: skip
from tests.support.requirements import skip_or_fail

DEPLOY = CHART.parents[1]
EACH = pytest.mark.parametrize("name", VALUES)
WITH_FLOWER = pytest.mark.parametrize("name", [name for name in VALUES if name != "sentinel-hpa"])
STANDARD_PORTS = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}


def settings_of(name: str, *settings: str) -> WorkerSettings:
    return WorkerSettings.from_env(environment(name, "worker", *settings))


def known_variables() -> set[str]:
    hints = get_type_hints(WorkerSettings, include_extras=True)
    return {variable(hints[field], field) for field in WorkerSettings.__struct_fields__}


@EACH
def test_a_worker_knows_every_variable_and_takes_its_value(name: str) -> None:
    of_others = {entry["name"] for entry in values(name)["worker"]["extraEnv"]}
    assert {entry["name"] for entry in container(name, "worker")["env"]} - of_others <= known_variables()
    said, settings = values(name), settings_of(name)
    assert settings.namespace == said["namespace"]
    assert settings.query_modules == tuple(said["queries"]["modules"])
    assert (settings.neo4j_uri, settings.neo4j_user) == (said["graph"]["uri"], said["graph"]["user"])
    assert (settings.workers, settings.budget_seconds) == (said["worker"]["processes"], said["worker"]["budgetSeconds"])
    assert settings.metrics_port == (said["metrics"]["port"] if said["metrics"]["enabled"] else 0)
    assert settings.health_port == said["worker"]["healthPort"]
    assert settings.health_address == said["pod"]["listenAddress"]


def test_numbers_and_truths_arrive_as_they_were_written() -> None:
    settings = settings_of("keda-redis")
    assert (settings.beta, settings.max_value_bytes, settings.retry_enabled) == (1.5, 67_108_864, False)
    assert (settings.cooling_seconds, settings.namespace, settings.neo4j_password) == (45, "2024", "0123456")
    # A number of that size is 6.7108864e+07 to a template.
    assert environment("keda-redis", "worker")["CACHE_MAX_VALUE_BYTES"] == "67108864"
    assert settings_of("redis", "worker.env.CACHE_MAX_VALUE_BYTES=536870912").max_value_bytes == 536_870_912


def test_every_setting_of_a_worker_can_be_said_in_one_place() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    in_env = set(schema["properties"]["worker"]["properties"]["env"]["properties"])
    # With all that is optional turned on.
    made_of_values = {entry["name"] for entry in container("rabbitmq", "worker", "graph.database=d")["env"]}
    assert in_env.isdisjoint(made_of_values)
    assert in_env | made_of_values == known_variables()


@EACH
def test_the_worker_s_command_line_is_celery_s(name: str) -> None:
    said, arguments = values(name), container(name, "worker")["args"]
    app = make_app(WorkerSettings(queries="", namespace=said["namespace"]))
    assert arguments[:4] == ["celery", "-A", "refresher", "worker"]
    parsed = worker_command.make_context("worker", list(arguments[4:]), obj=CLIContext(app, False, sys.stdout, False))
    assert parsed.params["hostname"].startswith("refresh@")
    assert parsed.params["without_mingle"] is True
    urls = {"redis": "redis://", "rabbitmq": "amqp://"}
    both = [
        one(said["namespace"], urls[said["broker"]["kind"]])
        for one in (broker_settings.miss_queue, broker_settings.refresh_queue)
    ]
    wanted = [
        queue for queue, kind in zip(both, ("misses", "refreshes"), strict=True) if kind in said["worker"]["queues"]
    ]
    # Without -Q it takes what the app says: both.
    assert list(parsed.params["queues"] or both) == wanted


@pytest.mark.parametrize("seconds", ["0.1", "30", "44.5", "120.5", "3600"])
def test_a_pod_has_longer_to_end_than_a_refresh_may_take(seconds: str) -> None:
    chosen = f"worker.budgetSeconds={seconds}"
    settings = settings_of("redis", chosen)
    assert settings.budget_seconds == float(seconds)
    grace = pod_of(deployment("redis", "worker", chosen))["terminationGracePeriodSeconds"]
    assert isinstance(grace, int)
    assert settings.hard_limit_seconds + 10 < grace < settings.hard_limit_seconds + 20


@EACH
def test_the_limits_nest_in_each_example(name: str) -> None:
    grace = pod_of(deployment(name, "worker"))["terminationGracePeriodSeconds"]
    assert grace > settings_of(name).hard_limit_seconds


@WITH_FLOWER
def test_flower_knows_every_variable_and_lets_nobody_in_without_a_password(name: str) -> None:
    environ = environment(name, "flower")
    for variable_name in environ.keys() - {"CELERY_BROKER_URL", "CACHE_NAMESPACE"}:
        assert variable_name.removeprefix("FLOWER_").lower() in options
    signs_in = [entry["name"] for entry in container(name, "flower")["env"] if not _is_optional(entry)]
    by_oauth = {"FLOWER_AUTH", "FLOWER_AUTH_PROVIDER", "FLOWER_OAUTH2_KEY", "FLOWER_OAUTH2_SECRET"}
    assert "FLOWER_BASIC_AUTH" in signs_in or by_oauth <= set(signs_in)
    assert environ["FLOWER_PORT"] == str(container(name, "flower")["ports"][0]["containerPort"])
    assert not {"CACHE_REDIS_URL", "NEO4J_PASSWORD"} & environ.keys()


def _is_optional(entry: dict[str, Any]) -> bool:
    return bool(entry.get("valueFrom", {}).get("secretKeyRef", {}).get("optional"))


def test_the_image_has_what_the_chart_takes_for_granted() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    [user] = re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)
    assert int(user) == values("redis")["pod"]["user"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container("keda-redis", "worker")["volumeMounts"]}
    assert re.search(rf"^ENV .*\bPYTHONPATH={mounts['queries']}\b", dockerfile, re.MULTILINE)
    [config] = [word.removeprefix("--conf=") for word in container("redis", "flower")["args"] if "--conf" in word]
    copied = rf"^COPY (?:.* )?deploy/{Path(config).name} (?:.* )?{Path(config).parent}/$"
    assert re.search(copied, dockerfile, re.MULTILINE)


def ports_of_url(url: str) -> set[int]:
    """The ports that a URL leads to; read by other means than the chart's."""
    if url.startswith(("redis", "rediss")) and read_url(url).topology is not Topology.SINGLE:
        return {port for _, port in read_url(url).members}
    parts = urlsplit(url)
    return {parts.port or STANDARD_PORTS.get(parts.scheme, 7687)}


def let_out(name: str, part: str) -> list[tuple[frozenset[int], Any]]:
    """Ports and peers of each rule by which a part may get out."""
    [policy] = [one for one in of_kind(name, "NetworkPolicy") if one["metadata"]["name"].endswith(f"-{part}")]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    return [
        (frozenset(port["port"] for port in rule["ports"]), rule.get("to", [])) for rule in policy["spec"]["egress"]
    ]


@pytest.mark.parametrize("name", [name for name in VALUES if name != "cluster-oauth"])
def test_workers_get_out_to_their_servers_and_nowhere_else(name: str) -> None:
    said, environ = values(name), environment(name, "worker")
    urls = {"cache": "CACHE_REDIS_URL", "broker": "CELERY_BROKER_URL", "graph": "NEO4J_URI"}
    ports = {part: set(said[part]["ports"]) or ports_of_url(environ[url]) for part, url in urls.items()}
    assert all(ports_of_url(environ[url]) <= ports[part] for part, url in urls.items())
    policy = said["networkPolicy"]
    more = [(frozenset(port["port"] for port in rule["ports"]), rule["to"]) for rule in policy["workerEgress"]]
    dns = (frozenset(policy["dns"]["ports"]), policy["dns"]["peers"])
    servers = [(frozenset(ports[part]), said[part]["peers"]) for part in urls]
    assert let_out(name, "worker") == [dns, *servers, *more]
    if said["flower"]["enabled"]:
        assert let_out(name, "flower") == [dns, servers[1]]


def test_a_cluster_s_nodes_and_the_sign_in_of_others_can_be_reached() -> None:
    chosen = ("networkPolicy.enabled=true",)
    worker, flower = of_kind("cluster-oauth", "NetworkPolicy", *chosen)
    assert {port["port"] for rule in worker["spec"]["egress"] for port in rule["ports"]} == {53, 7000, 7001, 6380, 7687}
    assert {port["port"] for rule in flower["spec"]["egress"] for port in rule["ports"]} == {53, 6380, 443}
    # Nobody has been let in.
    assert "ingress" not in {*worker["spec"], *flower["spec"]}


def test_in_come_prometheus_and_those_who_look() -> None:
    said = values("keda-redis")["networkPolicy"]
    monitoring, lookers = said["metricsFrom"], said["flowerFrom"]
    policies = {one["metadata"]["name"]: one["spec"]["ingress"] for one in of_kind("keda-redis", "NetworkPolicy")}
    assert policies == {
        "graph-cache-worker": [{"ports": [{"protocol": "TCP", "port": "metrics"}], "from": monitoring}],
        "graph-cache-flower": [{"ports": [{"protocol": "TCP", "port": "http"}], "from": [*lookers, *monitoring]}],
    }


@pytest.mark.parametrize("name", ["keda-redis", "rabbitmq"])
def test_keda_asks_for_the_queues_that_the_workers_take(name: str) -> None:
    said = values(name)
    [scaled] = of_kind(name, "ScaledObject")
    triggers = {trigger["name"]: trigger for trigger in scaled["spec"]["triggers"]}
    queues = {"misses": broker_settings.miss_queue, "refreshes": broker_settings.refresh_queue}
    url = environment(name, "worker")["CELERY_BROKER_URL"]
    assert triggers.keys() - {"lead-time"} == set(said["worker"]["queues"])
    for which in said["worker"]["queues"]:
        metadata = triggers[which]["metadata"]
        assert metadata.get("listName", metadata.get("queueName")) == queues[which](said["namespace"], url)
        assert metadata.get("listLength", metadata.get("value")) == str(said["autoscaling"]["keda"]["queue"][which])
        [authentication] = of_kind(name, "TriggerAuthentication")
        assert triggers[which]["authenticationRef"]["name"] == authentication["metadata"]["name"]
    if name == "keda-redis":
        assert triggers["misses"]["metadata"]["databaseIndex"] == urlsplit(url).path.strip("/") == "3"


def test_keda_s_query_is_the_wait_of_the_slowest_query(tmp_path: Path) -> None:
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
    promtool = shutil.which("promtool")
    if promtool is None:
        skip_or_fail("promtool is not installed (Debian's package prometheus)")
    command = [promtool, "test", "rules", "rules.tests.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _expects(query: str, seconds: float) -> dict[str, Any]:
    return {"expr": query, "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": seconds}]}


def test_what_is_scraped_has_the_names_that_the_rules_know() -> None:
    jobs, paths = {}, {}
    for monitor in of_kind("keda-redis", "PodMonitor", "flower.urlPrefix=flower"):
        [end] = monitor["spec"]["podMetricsEndpoints"]
        assert end["relabelings"] == [{"targetLabel": "job", "replacement": end["relabelings"][0]["replacement"]}]
        jobs[monitor["metadata"]["name"]] = end["relabelings"][0]["replacement"]
        paths[monitor["metadata"]["name"]] = end["path"]
    assert paths == {"graph-cache-worker": "/metrics", "graph-cache-flower": "/flower/metrics"}
    known = re.findall(r'job="([\w-]+)"', (DEPLOY / "prometheus" / "refresher.alerts.yml").read_text())
    # What the application scrapes of its own is its own.
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


def test_the_readme_has_every_value_with_its_default() -> None:
    rows = re.findall(r"^\| `([A-Za-z.]+)` \| `(.*?)` \|", (CHART / "README.md").read_text(), re.MULTILINE)
    said = {key: yaml.safe_load(default) for key, default in rows}
    assert len(said) == len(rows)
    chart_values = yaml.safe_load((CHART / "values.yaml").read_text())
    for key, default in said.items():
        found = chart_values
        for part in key.split("."):
            found = found[part]
        assert found == default, key
    assert _leaves(chart_values, said.keys()) == said.keys()


def _leaves(tree: Any, whole: Any, prefix: str = "") -> set[str]:
    """The keys of a tree, those of ``whole`` not taken apart."""
    if prefix[:-1] in whole or not isinstance(tree, dict):
        return {prefix[:-1]}
    return {leaf for key, value in tree.items() for leaf in _leaves(value, whole, f"{prefix}{key}.")}
