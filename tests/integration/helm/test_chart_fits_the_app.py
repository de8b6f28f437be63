"""The chart's settings for worker and Flower, checked against those that they accept."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from celery.bin.base import CLIContext
from celery.bin.worker import worker as worker_command
from flower import options as flower_options  # noqa: F401 - its import defines Flower's options
from tornado.options import options

from api_client.config import broker as broker_settings
from api_client.config.environment import variable
from refresher.feed.settings import FeedSettings
from refresher.settings import WorkerSettings
from refresher.worker.app import make_app
from tests.support.chart import (
    CHART,
    VALUES,
    container,
    deployment,
    environment,
    pod_of,
    values,
)  # fmt: skip
from tests.support.settings_page import settings_in_code

DEPLOY = CHART.parents[1]
EACH = pytest.mark.parametrize("name", VALUES)
WITH_FLOWER = pytest.mark.parametrize("name", [name for name in VALUES if name != "sentinel-hpa"])


def settings_of(name: str, *settings: str) -> WorkerSettings:
    env = environment(name, "worker", *settings)
    if authority := env.get("NEO4J_CA_CERTS"):
        assert authority.startswith("/etc/refresher/certificates/")
        env["NEO4J_CA_CERTS"] = __file__  # in the pod it is mounted; the settings require an existing file
    return WorkerSettings.from_env(env)


def known_variables() -> set[str]:
    hints = get_type_hints(FeedSettings, include_extras=True)
    of_feed = {variable(hints[field], field) for field in FeedSettings.__struct_fields__}
    return {name for name, _, kind, _ in settings_in_code() if kind is WorkerSettings} | of_feed


@EACH
def test_the_worker_accepts_every_rendered_variable_with_the_chart_s_value(name: str) -> None:
    of_others = {entry["name"] for entry in values(name)["worker"]["extraEnv"]}
    assert {entry["name"] for entry in container(name, "worker")["env"]} - of_others <= known_variables()
    said, settings = values(name), settings_of(name)
    assert settings.namespace == said["namespace"]
    assert settings.query_modules == tuple(said["queries"]["modules"])
    assert (settings.neo4j_uri, settings.neo4j_user) == (said["graph"]["uri"], said["graph"]["user"])
    assert (settings.workers, settings.budget_seconds) == (said["worker"]["processes"], said["worker"]["budgetSeconds"])
    assert settings.metrics_port == (said["metrics"]["port"] if said["metrics"]["enabled"] else 0)
    assert settings.health_port == said["worker"]["healthPort"]
    assert settings.feed == said["feed"]["enabled"]
    assert settings.health_address == said["pod"]["listenAddress"]


def test_the_feed_s_user_and_password_reach_the_worker() -> None:
    env = environment("redis", "worker", "feed.enabled=true", "feed.user=feed", "feed.password=secret")
    assert FeedSettings.from_env(env) == FeedSettings(user="feed", password="secret")
    assert FeedSettings.from_env(environment("redis", "worker", "feed.enabled=true")) == FeedSettings()


def test_numbers_and_booleans_reach_the_worker_as_written() -> None:
    settings = settings_of("keda-redis")
    assert (settings.beta, settings.max_value_bytes, settings.retry_enabled) == (1.5, 67_108_864, False)
    assert (settings.cooling_seconds, settings.namespace, settings.neo4j_password) == (45, "2024", "0123456")
    # A number of that size is 6.7108864e+07 to a template.
    assert environment("keda-redis", "worker")["CACHE_MAX_VALUE_BYTES"] == "67108864"
    assert settings_of("redis", "worker.env.CACHE_MAX_VALUE_BYTES=536870912").max_value_bytes == 536_870_912


def test_every_worker_setting_has_exactly_one_place_in_the_chart_s_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    in_env = set(schema["properties"]["worker"]["properties"]["env"]["properties"])
    # With all that is optional turned on.
    made_of_values = {entry["name"] for entry in container("rabbitmq", "worker", "graph.database=d")["env"]}
    assert in_env.isdisjoint(made_of_values)
    assert in_env | made_of_values == known_variables()


@EACH
def test_celery_accepts_the_worker_s_command_line_with_the_chosen_queues(name: str) -> None:
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
    # Without -Q it consumes the queues of the app: both.
    assert list(parsed.params["queues"] or both) == wanted


@pytest.mark.parametrize("seconds", ["0.1", "30", "44.5", "120.5", "3600"])
def test_a_pod_s_grace_period_exceeds_the_hard_limit_of_a_refresh(seconds: str) -> None:
    chosen = f"worker.budgetSeconds={seconds}"
    settings = settings_of("redis", chosen)
    assert settings.budget_seconds == float(seconds)
    grace = pod_of(deployment("redis", "worker", chosen))["terminationGracePeriodSeconds"]
    assert isinstance(grace, int)
    assert settings.hard_limit_seconds + 10 < grace < settings.hard_limit_seconds + 20


@EACH
def test_the_grace_period_exceeds_the_hard_limit_in_each_example(name: str) -> None:
    grace = pod_of(deployment(name, "worker"))["terminationGracePeriodSeconds"]
    assert grace > settings_of(name).hard_limit_seconds


@WITH_FLOWER
def test_flower_accepts_every_rendered_variable_and_requires_authentication(name: str) -> None:
    environ = environment(name, "flower")
    for variable_name in environ.keys() - {"CACHE_BROKER_URL", "CACHE_NAMESPACE"}:
        assert variable_name.removeprefix("FLOWER_").lower() in options
    requires_auth = [entry["name"] for entry in container(name, "flower")["env"] if not _is_optional(entry)]
    by_oauth = {"FLOWER_AUTH", "FLOWER_AUTH_PROVIDER", "FLOWER_OAUTH2_KEY", "FLOWER_OAUTH2_SECRET"}
    assert "FLOWER_BASIC_AUTH" in requires_auth or by_oauth <= set(requires_auth)
    assert environ["FLOWER_PORT"] == str(container(name, "flower")["ports"][0]["containerPort"])
    assert not {"CACHE_REDIS_URL", "NEO4J_PASSWORD"} & environ.keys()


def _is_optional(entry: dict[str, Any]) -> bool:
    return bool(entry.get("valueFrom", {}).get("secretKeyRef", {}).get("optional"))


def test_the_image_has_the_user_paths_and_config_that_the_chart_assumes() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    [user] = re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)
    assert int(user) == values("redis")["pod"]["user"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container("keda-redis", "worker")["volumeMounts"]}
    assert re.search(rf"^ENV .*\bPYTHONPATH={mounts['queries']}\b", dockerfile, re.MULTILINE)
    [config] = [word.removeprefix("--conf=") for word in container("redis", "flower")["args"] if "--conf" in word]
    copied = rf"^COPY (?:.* )?deploy/{Path(config).name} (?:.* )?{Path(config).parent}/$"
    assert re.search(copied, dockerfile, re.MULTILINE)


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
    """Return the keys of a tree's leaves; those in ``whole`` count as leaves."""
    if prefix[:-1] in whole or not isinstance(tree, dict):
        return {prefix[:-1]}
    return {leaf for key, value in tree.items() for leaf in _leaves(value, whole, f"{prefix}{key}.")}
