"""compose.yaml and all that it mounts, names and reads: valid, and consistent with the project's code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_client.config.durations import seconds
from api_client.config.settings import ReaderSettings
from refresher.embedded.maven import LTS
from refresher.settings import WorkerSettings
from tests.support.deployment_files import DEPLOY, compose, copy_with_secrets, directives, environment, stages
from tests.support.requirements import run, tool
from tests.support.settings_page import settings_in_code

ON_REDIS = compose()
ON_RABBITMQ = compose("compose.yaml", "compose.rabbitmq.yaml")
BOTH = pytest.mark.parametrize("system", [ON_REDIS, ON_RABBITMQ], ids=["redis", "rabbitmq"])
OURS = {"refresher": "worker", "refresher-example": "application"}
BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Variables that others than our settings read: Flower, gunicorn's configuration, Neo4j's and Grafana's images.
OF_OTHERS = re.compile(r"(FLOWER|NEO4J|GF)_[A-Za-z_]+|BIND")


def size(text: str) -> int:
    """Return the bytes of a size as Redis and compose write it."""
    number, unit = re.fullmatch(r"(\d+)([kmg])b?", text).groups()  # type: ignore[union-attr]
    return int(number) * BYTES[unit]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of deploy/ with its secrets."""
    return copy_with_secrets(tmp_path_factory.mktemp("made"))


def test_the_compose_files_conform_to_the_compose_specification() -> None:
    files = ["deploy/compose.yaml", "deploy/compose.rabbitmq.yaml"]
    done = run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", *files)
    assert done.returncode == 0, done.stdout


@BOTH
def test_every_service_has_a_health_check_limits_and_no_privileges(system: dict[str, Any]) -> None:
    for name, service in system["services"].items():
        assert {"test", "interval", "timeout"} <= service["healthcheck"].keys(), name
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}, name
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert service.get("read_only") or name in {"neo4j", "rabbitmq"}, name
        # Ours say so in the Dockerfile; Prometheus's and Grafana's images run as nobody and as grafana.
        assert service.get("user") or service["image"] in OURS or name in {"prometheus", "grafana"}, name


@BOTH
def test_ports_are_published_on_loopback_only_and_once_each(system: dict[str, Any]) -> None:
    published = [port for service in system["services"].values() for port in service.get("ports", [])]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in published)
    hosts = [port.split(":")[1] for port in published]
    assert len(set(hosts)) == len(hosts) >= 6


@BOTH
def test_every_image_is_pinned_or_built_here(system: dict[str, Any]) -> None:
    for name, service in system["services"].items():
        if service["image"] in OURS:
            assert service["build"]["target"] == OURS[service["image"]]
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        else:
            assert re.fullmatch(r"[a-z/0-9]+:v?\d+\.\d+\.\d+(-community)?", service["image"]), name
    assert system["services"]["neo4j"]["image"] == f"neo4j:{LTS.version}-community"  # as it is tested
    bases = {rest.split(" AS ")[0] for stage in stages().values() for word, rest in stage if word == "FROM"}
    assert {base for base in bases if base not in stages()} == {"python:3.11.15-slim-bookworm"}


@BOTH
def test_every_mount_secret_network_and_dependency_exists(system: dict[str, Any], made: Path) -> None:
    for name, service in system["services"].items():
        for mounted in service.get("volumes", []):
            source = mounted.split(":")[0]
            assert (made / source).exists() if source.startswith("./") else source in system["volumes"], mounted
        for file in service.get("env_file", []):
            assert (made / file).is_file(), file
        for secret in service.get("secrets", []):
            secret_name = secret if isinstance(secret, str) else secret["source"]
            assert (made / system["secrets"][secret_name]["file"]).is_file(), secret
            assert isinstance(secret, dict) or f"/run/secrets/{secret}" in json.dumps(service), secret
        assert set(service["networks"]) <= set(system["networks"]), name
        for other in service.get("depends_on", {}):
            assert set(system["services"][other]["networks"]) & set(service["networks"]), f"{name} can't reach {other}"
    assert {volume for volume in system["volumes"] if f'"{volume}:/' not in json.dumps(system)} == set()


def servers_named(environ: dict[str, str]) -> set[str]:
    return {host for value in environ.values() for host in re.findall(r"(?:@|bolt://)([a-z][a-z0-9-]+):\d+", value)}


def test_every_environment_variable_is_read_by_some_program(made: Path) -> None:
    named = [set(environment(file)) for file in (made / "secrets").glob("*.env")]
    named += [set(service.get("environment", {})) for service in ON_RABBITMQ["services"].values()]
    named += [
        {word.split("=")[0] for word in rest.split()}
        for stage in ("worker", "application")
        for word, rest in stages()[stage]
        if word == "ENV"
    ]
    unknown = set().union(*named) - {name for name, *_ in settings_in_code()} - {"PYTHONPATH"}
    assert {one for one in unknown if not OF_OTHERS.fullmatch(one)} == set()
    for kind, file in ((WorkerSettings, "worker.env"), (ReaderSettings, "application.env")):
        kind.from_env(environment(made / "secrets" / file))


@pytest.mark.parametrize("arguments", [(), ("here",)], ids=["compose", "here"])
def test_secrets_are_random_and_each_server_has_its_own(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    folder = copy_with_secrets(tmp_path, *arguments) / "secrets"
    assert folder.stat().st_mode & 0o777 == 0o700
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    assert not any("CHANGE_ME" in text for text in texts.values())
    found = {word for text in texts.values() for word in re.findall(r"\b[0-9a-f]{48}\b", text)}
    assert len(found) == 8  # cache, broker, graph, RabbitMQ, Flower and its cookie, Grafana and its key
    broker, cache = (re.findall(r"[0-9a-f]{48}", texts[f"redis-{name}.conf"])[0] for name in ("broker", "cache"))
    assert f":{broker}@" in texts["flower.env"]
    assert cache not in texts["flower.env"]
    hosts = set().union(*(servers_named(environment(folder / f"{one}.env")) for one in ("worker", "rabbitmq")))
    assert hosts == (set() if arguments else {"redis-cache", "redis-broker", "neo4j", "rabbitmq"})
    again = run(str(folder.parent / "new-secrets"))
    assert (again.returncode, "is there already" in again.stderr) == (1, True)
    assert texts == {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}


def test_time_limits_nest_from_the_transaction_to_the_stop_of_the_service(made: Path) -> None:
    settings = WorkerSettings.from_env(environment(made / "secrets" / "worker.env"))
    services = ON_REDIS["services"]
    stops = [seconds(services["worker"]["stop_grace_period"])]
    stops += [seconds(value) for value in directives(DEPLOY / "refresher-worker.service", "TimeoutStopSec")]
    assert len(stops) == 2
    assert settings.transaction_timeout_seconds < settings.budget_seconds < settings.soft_limit_seconds
    assert settings.soft_limit_seconds < settings.hard_limit_seconds < min(stops)
    gunicorn = (DEPLOY / "example-app" / "gunicorn.conf.py").read_text(encoding="utf-8")
    [graceful] = re.findall(r"^graceful_timeout = (\d+)$", gunicorn, re.MULTILINE)
    assert int(graceful) < seconds(services["application"]["stop_grace_period"])
    [waits] = re.findall(r"^WAIT_SECONDS = ([\d.]+)$", (DEPLOY / "example-app" / "application.py").read_text(), re.M)
    [kills] = re.findall(r"^timeout = (\d+)$", gunicorn, re.MULTILINE)
    assert float(waits) < int(graceful) < int(kills)


@pytest.mark.parametrize(("name", "least"), [("redis-cache", 1.4), ("redis-broker", 2.4)])
def test_redis_s_memory_fits_into_its_container(name: str, least: float) -> None:
    [most] = re.findall(r"^maxmemory (\w+)$", (DEPLOY / f"{name}.conf").read_text(), re.MULTILINE)
    limit = ON_REDIS["services"][name]["deploy"]["resources"]["limits"]["memory"]
    assert size(limit) >= least * size(most)


@pytest.mark.container
def test_prometheus_s_two_configurations_are_valid_and_differ_in_their_targets_alone() -> None:
    by_hand, in_compose = (
        yaml.safe_load((DEPLOY / "prometheus" / f"prometheus{name}.yml").read_text(encoding="utf-8"))
        for name in ("", ".compose")
    )
    done = run(tool("promtool"), "check", "config", "prometheus.compose.yml", cwd=DEPLOY / "prometheus")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    jobs = [[job["job_name"] for job in config["scrape_configs"]] for config in (in_compose, by_hand)]
    assert jobs[0] == jobs[1]
    assert {**in_compose, "scrape_configs": []} == {**by_hand, "scrape_configs": []}


def test_prometheus_s_retention_exceeds_the_longest_range_of_the_rules() -> None:
    rules = "".join(file.read_text(encoding="utf-8") for file in (DEPLOY / "prometheus").glob("refresher.*s.yml"))
    longest = max(int(days) for days in re.findall(r"\[(\d+)d\]", rules))
    [kept] = re.findall(r"retention\.time=(\d+)d", json.dumps(ON_REDIS["services"]["prometheus"]["command"]))
    assert int(kept) > longest


def test_grafana_finds_its_data_source_and_the_dashboard() -> None:
    service = ON_REDIS["services"]["grafana"]
    provisioning = DEPLOY / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert source["url"] == "http://prometheus:9090"
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.compose.yml").read_text(encoding="utf-8"))
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    [provider] = yaml.safe_load((provisioning / "dashboards" / "refresher.yml").read_text())["providers"]
    assert f"./grafana/refresher.json:{provider['options']['path']}/refresher.json:ro" in service["volumes"]
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in service["volumes"]


def unknown_fields(written: Any, understood: Any, where: str = "") -> Iterator[str]:
    """Yield the paths of fields that were lost or changed."""
    if isinstance(written, dict) and isinstance(understood, dict):
        for key, value in written.items():
            yield from unknown_fields(value, understood.get(key), f"{where}/{key}")
    elif isinstance(written, list) and isinstance(understood, list) and len(written) == len(understood):
        for n, (one, other) in enumerate(zip(written, understood, strict=True)):
            yield from unknown_fields(one, other, f"{where}/{n}")
    elif written != understood:
        yield where


# Newer Grafanas have a second kind of dashboard; all import this one.
@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning")
def test_grafana_knows_each_field_of_the_dashboard() -> None:
    from grafana_foundation_sdk.cog import plugins
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    def unknown(written: dict[str, Any]) -> list[str]:
        return list(unknown_fields(written, json.loads(JSONEncoder().encode(Dashboard.from_json(written)))))

    plugins.register_default_plugins()
    dashboard = json.loads((DEPLOY / "grafana" / "refresher.json").read_text(encoding="utf-8"))
    assert unknown(dashboard) == []
    dashboard["panels"][1]["fieldConfig"]["defaults"]["unitt"] = "s"
    assert unknown(dashboard) == ["/panels/1/fieldConfig/defaults/unitt"]
    kinds = {panel["type"] for panel in dashboard["panels"]} - {"row"}
    assert {kind for kind in kinds if find_spec(f"grafana_foundation_sdk.models.{kind}") is None} == set()
