"""The chart of `deploy/helm`, rendered by Helm for tests, and the contents of its manifests."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.requirements import tool

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "refresher"
VALUES = tuple(sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml")))
RELEASE, NAMESPACE, KUBERNETES = "graph", "caches", "1.37.0"

# The contents of Secrets that the chart does not make, for each values file.
URLS = {
    "redis": {
        "CACHE_REDIS_URL": "redis://worker:p@cache:6379/0",
        "CACHE_BROKER_URL": "redis://worker:p@broker:6379/0",
    },
    "rabbitmq": {"CACHE_REDIS_URL": "redis://worker:p@cache:6379/0", "CACHE_BROKER_URL": "amqps://worker:p@broker//"},
}
PASSWORDS = {
    "NEO4J_PASSWORD": "p",
    "REFRESHER_FEED_PASSWORD": "p",
    "FLOWER_BASIC_AUTH": "looker:p",
    "FLOWER_COOKIE_SECRET": "p",
    "FLOWER_OAUTH2_KEY": "p",
    "FLOWER_OAUTH2_SECRET": "p",
    "FLOWER_OAUTH2_REDIRECT_URI": "https://flower.example.org/login",
}

Manifest = dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm, without any cluster or user settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
    return subprocess.run(
        [tool("helm"), *arguments],
        env={**environ, "KUBECONFIG": os.devnull, "HELM_NO_PLUGINS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def values_file(name: str) -> str:
    return str(CHART / "ci" / f"{name}-values.yaml")


def values(name: str) -> dict[str, Any]:
    """Return the values of a file over the chart's own: mappings merged, all else replaced, as Helm does it."""
    return _merged(*(yaml.safe_load(Path(path).read_text()) for path in (CHART / "values.yaml", values_file(name))))


def _merged(first: Any, second: Any) -> Any:
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return second
    return {**first, **{key: _merged(first.get(key), value) for key, value in second.items()}}


def template(*arguments: str, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """Render the chart for a current Kubernetes: a locally built Helm would assume an old one."""
    return helm("template", RELEASE, str(chart), "--namespace", NAMESPACE, "--kube-version", KUBERNETES, *arguments)


@functools.cache
def rendered(name: str, *settings: str) -> tuple[Manifest, ...]:
    """Return the manifests for a values file, with more settings, ``key=value``."""
    more = [part for setting in settings for part in (_option(setting), setting)]
    done = template("--values", values_file(name), *more)
    assert done.returncode == 0, done.stderr
    return tuple(manifest for manifest in yaml.safe_load_all(done.stdout) if manifest)


def _option(setting: str) -> str:
    """Return Helm's option for a setting: ``--set`` would take 1.5 as a text."""
    try:
        json.loads(setting.partition("=")[2])
    except ValueError:
        return "--set"
    return "--set-json"


def of_kind(name: str, kind: str, *settings: str) -> list[Manifest]:
    return [manifest for manifest in rendered(name, *settings) if manifest["kind"] == kind]


def deployment(name: str, part: str, *settings: str) -> Manifest:
    """Return the Deployment of workers, or of Flower."""
    [found] = [one for one in of_kind(name, "Deployment", *settings) if one["metadata"]["name"].endswith(f"-{part}")]
    return found


def pod_of(manifest: Manifest) -> Manifest:
    """Return the specification of a Deployment's pods."""
    pod: Manifest = manifest["spec"]["template"]["spec"]
    return pod


def container(name: str, part: str, *settings: str) -> Manifest:
    [only] = pod_of(deployment(name, part, *settings))["containers"]
    found: Manifest = only
    return found


def secrets(name: str, *settings: str) -> dict[str, dict[str, str]]:
    """Return the Secrets that the chart makes, by name."""
    return {one["metadata"]["name"]: one["stringData"] for one in of_kind(name, "Secret", *settings)}


def environment(name: str, part: str, *settings: str) -> dict[str, str]:
    """Return a container's variables as its process would have them, with made-up values for foreign Secrets."""
    made = secrets(name, *settings)
    others = {**PASSWORDS, **URLS[values(name)["broker"]["kind"]]}
    return dict(variables(container(name, part, *settings)["env"], made, others))


def variables(
    entries: list[dict[str, Any]], made: dict[str, dict[str, str]], others: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Return a container's ``env``, with the values of Secrets: those ``made`` by name, else ``others``."""
    for entry in entries:
        if "value" in entry:
            yield entry["name"], entry["value"]
        elif reference := entry["valueFrom"].get("secretKeyRef"):
            held = made.get(reference["name"], others)
            if reference["key"] in held or not reference.get("optional"):
                yield entry["name"], held[reference["key"]]


def ports_of(manifest: Manifest) -> dict[str, int]:
    """Return a pod's ports by name."""
    return {
        port["name"]: port["containerPort"] for one in pod_of(manifest)["containers"] for port in one.get("ports", [])
    }
