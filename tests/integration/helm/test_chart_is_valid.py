"""The chart against Helm's lint, its manifests against the schemas of Kubernetes, KEDA and prometheus-operator."""

from __future__ import annotations

import functools
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

import api_client
from tests.support.chart import (
    CHART,
    KUBERNETES,
    VALUES,
    Manifest,
    container,
    deployment,
    helm,
    of_kind,
    pod_of,
    ports_of,
    rendered,
    secrets,
    template,
    values_file,
)  # fmt: skip
from tests.support.requirements import run, skip_or_fail, tool

# The oldest version that the chart supports, and a new one.
VERSIONS = ("1.27.0", KUBERNETES)
CUSTOM = Path(__file__).with_name("custom_resources.json")
EACH = pytest.mark.parametrize("name", VALUES)


@functools.cache
def module(name: str) -> Path:
    """Return the folder of a downloaded Go module; ``name`` is its path, without the version."""
    [versioned] = [one for one in json.loads(CUSTOM.read_text()) if one.startswith(f"{name}@")]
    folder = Path(run(tool("go"), "env", "GOMODCACHE").stdout.strip()) / versioned
    if not folder.is_dir():
        skip_or_fail(f"{folder} is not there: go mod download {versioned}")
    return folder


@functools.cache
def custom_schemas() -> dict[tuple[str, str], Draft202012Validator]:
    """Return the schemas of custom resources, by apiVersion and kind, from the Go modules that define them."""
    found = {}
    for name, paths in json.loads(CUSTOM.read_text()).items():
        for path in paths:
            file = module(name.partition("@")[0]) / path
            definition = yaml.safe_load(file.read_text())["spec"]
            for version in definition["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                kind = (f"{definition['group']}/{version['name']}", definition["names"]["kind"])
                found[kind] = Draft202012Validator(schema)
    return found


def strict(schema: Any) -> Any:
    """Return the schema closed to unknown fields, which a cluster would drop silently."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    return closed


def problems(manifest: Manifest) -> list[str]:
    kind = (manifest["apiVersion"], manifest["kind"])
    if kind in custom_schemas():
        return [f"{error.json_path}: {error.message}" for error in custom_schemas()[kind].iter_errors(manifest)]
    try:
        for version in VERSIONS:
            kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{error.version}, {error.json_path}: {error.message}"]
    return []


@pytest.mark.parametrize("name", [*VALUES, "none"])
def test_helm_lint_finds_nothing(name: str) -> None:
    done = helm(
        "lint",
        "--strict",
        "--kube-version",
        KUBERNETES,
        str(CHART),
        *([] if name == "none" else ["--values", values_file(name)]),
    )
    assert (done.returncode, "1 chart(s) linted, 0 chart(s) failed" in done.stdout) == (0, True), done.stdout
    assert [line for line in done.stdout.splitlines() if "[WARNING]" in line or "[ERROR]" in line] == []


@EACH
def test_every_manifest_conforms_to_its_schema(name: str) -> None:
    assert {
        f"{one['kind']} {one['metadata']['name']}": found for one in rendered(name) if (found := problems(one))
    } == {}


def test_the_schemas_are_strict() -> None:
    good = {"kind": "ScaledObject", "apiVersion": "keda.sh/v1alpha1", "metadata": {"name": "x"}}
    spec = {"scaleTargetRef": {"name": "x"}, "triggers": [{"type": "redis", "metadata": {"listLength": "4"}}]}
    assert problems({**good, "spec": spec}) == []
    assert problems({**good, "spec": {**spec, "minReplicas": 1}})
    assert problems({**good, "spec": {**spec, "triggers": [{"type": "redis", "metadata": {"listLength": 4}}]}})
    budget = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "x"}}
    assert problems({**budget, "spec": {"maxUnavailable": 1}}) == []
    assert problems({**budget, "spec": {"maxUnavailabel": 1}})
    # Each kind is rendered by some values file.
    kinds = {one["kind"] for name in VALUES for one in rendered(name)}
    assert kinds == {
        "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "PodDisruptionBudget",
        "PodMonitor", "PrometheusRule", "ScaledObject", "Secret", "Service", "ServiceAccount", "TriggerAuthentication",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["keda-redis", "keda-sentinel", "rabbitmq"])
def test_keda_s_scalers_know_every_trigger_parameter(name: str) -> None:
    # The schema allows any name with any text, and KEDA ignores unknown names.
    known = re.compile(r'keda:"name=([\w;]+),\s*order=([\w;]+)')
    [scaled] = of_kind(name, "ScaledObject")
    for trigger in scaled["spec"]["triggers"]:
        scaler = trigger["type"].removesuffix("-sentinel")
        file = module("github.com/kedacore/keda/v2") / "pkg" / "scalers" / f"{scaler}_scaler.go"
        found = [(names.split(";"), order) for names, order in known.findall(file.read_text())]
        by_order = {
            order: {one for names, said in found if order in said for one in names}
            for order in ("triggerMetadata", "authParams")
        }
        assert trigger["metadata"].keys() <= by_order["triggerMetadata"]
        for one in of_kind(name, "TriggerAuthentication") if "authenticationRef" in trigger else []:
            assert {said["parameter"] for said in one["spec"]["secretTargetRef"]} <= by_order["authParams"]


@EACH
def test_names_are_unique_and_selectors_match_their_pods(name: str) -> None:
    named = [(one["kind"], one["metadata"]["name"]) for one in rendered(name)]
    assert len(set(named)) == len(named)
    assert {one["metadata"]["namespace"] for one in rendered(name)} == {"caches"}
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in of_kind(name, "Deployment")
    }
    for one in rendered(name):
        spec = one.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert [pod for pod, labels in pods.items() if wanted.items() <= labels.items()] == [
                one["metadata"]["name"]
            ], one["kind"]
        if "scaleTargetRef" in spec:
            assert spec["scaleTargetRef"]["name"] in pods
            assert "replicas" not in deployment(name, "worker")["spec"]


@EACH
def test_every_referenced_volume_port_secret_and_service_exists(name: str) -> None:
    config_maps = {one["metadata"]["name"]: one["data"] for one in of_kind(name, "ConfigMap")}
    for one in of_kind(name, "Deployment"):
        pod, [only] = pod_of(one), pod_of(one)["containers"]
        assert {mount["name"] for mount in only["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        ports = ports_of(one)
        probes = [only[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")]
        assert set(probes) <= ports.keys()
        assert len(set(ports.values())) == len(ports)
        names = [entry["name"] for entry in only["env"]]
        assert len(set(names)) == len(names)
        for entry in only["env"]:
            reference = entry.get("valueFrom", {}).get("secretKeyRef")
            if reference and reference["name"] in secrets(name) and not reference.get("optional"):
                assert secrets(name)[reference["name"]][reference["key"]], reference
            assert reference is None or reference["name"].startswith("our-") or reference["name"] in secrets(name)
        for volume in pod["volumes"]:
            wanted = volume.get("configMap", {}).get("name", "our-")
            assert wanted.startswith("our-") or wanted in config_maps
    for one in of_kind(name, "Service"):
        assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports_of(deployment(name, "flower")).keys()
    for one in of_kind(name, "Ingress"):
        [path] = one["spec"]["rules"][0]["http"]["paths"]
        [service] = of_kind(name, "Service")
        backend = path["backend"]["service"]
        assert backend["name"] == service["metadata"]["name"]
        assert backend["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    for one in of_kind(name, "PodMonitor"):
        scraped = deployment(name, one["metadata"]["name"].rpartition("-")[2])
        assert {end["port"] for end in one["spec"]["podMetricsEndpoints"]} <= ports_of(scraped).keys()


@EACH
def test_pods_have_no_privileges_that_they_do_not_need(name: str) -> None:
    for one in of_kind(name, "Deployment"):
        pod, [only] = pod_of(one), pod_of(one)["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        # A Service called flower would set FLOWER_PORT, one called cache-metrics CACHE_METRICS_PORT.
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        assert all(mount["readOnly"] for mount in only["volumeMounts"] if mount["name"] != "tmp")
        assert {"requests", "limits"} <= only["resources"].keys()
    for one in of_kind(name, "ServiceAccount"):
        assert one["automountServiceAccountToken"] is False


def test_changing_the_worker_s_secret_or_queries_rolls_its_pods() -> None:
    def checksums(*settings: str) -> dict[str, str]:
        template = deployment("keda-redis", "worker", *settings)["spec"]["template"]
        return {key: value for key, value in template["metadata"]["annotations"].items() if key.startswith("checksum/")}

    before = checksums()
    changed = {
        "graph.password=other": {"checksum/secret"},
        r"queries.files.my_queries\.py=pass": {"checksum/queries"},
        "flower.basicAuth=looker:other": set(),
    }
    for setting, expected in changed.items():
        assert {key for key, value in checksums(setting).items() if value != before[key]} == expected, setting


def test_the_chart_has_the_project_s_version_and_image() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (api_client.__version__, api_client.__version__)
    assert container("redis", "worker")["image"] == f"refresher:{api_client.__version__}"
    assert container("rabbitmq", "flower")["image"].startswith("registry.example.org/graph/refresher@sha256:0123")


def test_a_packed_chart_renders_the_same(tmp_path: Path) -> None:
    packed = helm("package", str(CHART), "--destination", str(tmp_path))
    assert packed.returncode == 0, packed.stderr
    [archive] = tmp_path.iterdir()
    with tarfile.open(archive) as files:
        members = {member.name.removeprefix("refresher/"): member for member in files}
    # Links have to be packed as files, and files for tests have to be left out.
    assert all(member.isfile() for member in members.values())
    assert "files/refresher.alerts.yml" in members
    assert not any(name.startswith("ci/") for name in members)
    done = template("--values", values_file("keda-redis"), chart=archive)
    assert tuple(one for one in yaml.safe_load_all(done.stdout) if one) == rendered("keda-redis")


def test_the_readme_s_example_values_render_valid_manifests(tmp_path: Path) -> None:
    [example] = re.findall(r"^```yaml\n(.*?)^```$", (CHART / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.yaml").write_text(example)
    done = template("--values", str(tmp_path / "mine.yaml"))
    assert done.returncode == 0, done.stderr
    manifests = [one for one in yaml.safe_load_all(done.stdout) if one]
    assert {one["kind"]: found for one in manifests if (found := problems(one))} == {}
    assert "Secret" not in {one["kind"] for one in manifests}
