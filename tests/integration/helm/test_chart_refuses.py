"""Invalid values are refused with a message that says what to do; passwords are in Secrets only."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.chart import CHART, VALUES, rendered, secrets, template, values_file

# A values file, changes to it that are made together, and the report of each change; … stands for any text.
REFUSED = [
    ("redis", {  # by the schema
        "worker.env.CACHE_XFTCH_BETA=2": "'/worker/env': additional properties …'CACHE_XFTCH_BETA'… not allowed",
        "worker.env.CACHE_XFETCH_TIMEOUT=60s":
            "'/worker/env': additional properties …'CACHE_XFETCH_TIMEOUT'… not allowed",
        "worker.env.CACHE_FEED=true": "'/worker/env': additional properties …'CACHE_FEED'… not allowed",
        "wroker.replicas=3": "'': additional properties 'wroker' not allowed",
        "broker.kind=kafka": "'/broker/kind': value must be one of 'redis', 'rabbitmq'",
        "queries.modules[0]=my-queries.py": "'/queries/modules/0': 'my-queries.py' does not match pattern",
        r"queries.files.my-queries\.py=pass": "'/queries/files': additional properties 'my-queries.py' not allowed",
        "namespace=a b": "'/namespace': 'a b' does not match pattern",
        "worker.budgetSeconds=30s": "'/worker/budgetSeconds': got string, want number",
        "worker.replicas=-1": "'/worker/replicas': minimum",
        "worker.queues[0]=others": "'/worker/queues/0': value must be one of 'misses', 'refreshes'",
        "pod.user=0": "'/pod/user': minimum",
        "metrics.port=70000": "'/metrics/port': maximum",
        "autoscaling.minReplicas=0": "'/autoscaling/minReplicas': minimum",
    }),
    ("redis", {"worker.budgetSeconds=0": "'/worker/budgetSeconds': minimum"}),
    ("redis", {
        "cache.url=memcached://u:hidden@cache": "cache.url: expected redis://",
        "broker.url=kafka://u:hidden@broker": "broker.url: expected redis://",
        "flower.brokerUrl=kafka://u:hidden@broker": "flower.brokerUrl: expected redis://",
        "graph.uri=bolt://neo4j:hidden@neo4j:7687": "graph.uri: expected bolt://host:port",
        "flower.basicAuth=hidden": "flower.basicAuth: expected user:password",
        "autoscaling.keda.queue.rabbitmq.url=u:hidden@broker": "rabbitmq.url: expected amqp://",
    }),
    ("redis", {
        "cache.url=": "cache.url: where is the cache?",
        "broker.url=": "broker.url: where is the broker?",
        "graph.password=": "graph.password: of the user graph.user",
        "queries.modules=null": "queries.modules: the modules that use @query",
        "worker.terminationGracePeriodSeconds=45": "is not above the hard limit of a refresh, which is 45 s",
        "flower.basicAuth=": "nobody looks at Flower without a password",
        "flower.ingress.enabled=true": "flower.ingress.host: under which name?",
        "feed.user=feed,feed.password=hidden": "feed.user: goes with feed.enabled=true",
        "metrics.port=9465": "metrics.port: is worker.healthPort, too",
        "certificates.graphFile=ca.crt": "certificates.secret, which is empty",
        "autoscaling.kind=keda": "autoscaling.keda.queue.redis.address: the broker as KEDA finds it",
        "autoscaling.minReplicas=11": "is more than autoscaling.maxReplicas",
    }),
    ("redis", {
        "broker.kind=rabbitmq": "broker.kind: rabbitmq does not go with broker.url",
        "secrets.worker=ours": "leave cache.url, broker.url, graph.password and feed.password empty",
        "secrets.flower=ours": "leave flower.basicAuth",
        "metrics.enabled=false,metrics.podMonitor.enabled=true": "there is nothing to scrape",
        "flower.ingress.enabled=true,flower.ingress.host=f.example.org": "in the clear",
        "certificates.graphFile=ca.crt,certificates.secret=ours": "goes with bolt+s://",
    }),
    ("redis", {
        "broker.url=amqp://broker": "broker.kind: redis does not go with broker.url",
        "feed.enabled=true,feed.user=feed": "feed.password: goes with feed.user",
        "flower.oauth.provider=flower.views.auth.GithubLoginHandler": "FLOWER_OAUTH2_KEY",
    }),
    ("keda-redis", {
        "autoscaling.keda.queue.enabled=false,autoscaling.keda.leadTime.enabled=false": "scales by what?",
        "queries.existingConfigMap=ours": "queries.files: there is queries.existingConfigMap already; give one of the",
    }),
    ("keda-redis", {
        "autoscaling.keda.leadTime.prometheus=": "which Prometheus",
        "secrets.scaler=ours": "says who KEDA is",
    }),
    ("rabbitmq", {
        "autoscaling.keda.queue.triggerAuthentication=ours": "triggerAuthentication already; give one of the two",
        "secrets.flower=,flower.basicAuth=a:b": "flower.brokerUrl: where is the broker?",
    }),
    ("rabbitmq", {"secrets.scaler=": "autoscaling.keda.queue.rabbitmq.url: the broker as KEDA finds it"}),
    ("rabbitmq", {"cache.ports=null": "cache.ports: the network policy has to name them"}),
    ("rabbitmq", {"broker.ports=null": "broker.ports: the network policy has to name them"}),
    ("keda-sentinel", {"broker.ports=null": "broker.ports: behind Sentinels, theirs and those of the servers"}),
    ("keda-sentinel", {
        "autoscaling.keda.queue.redis.sentinelMaster=": "KEDA needs the name of their master",
        "secrets.scaler=ours": "says who KEDA is",
    }),
    ("sentinel-hpa", {"cache.ports=null": "cache.ports: behind Sentinels, theirs and those of the servers"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "says"), REFUSED)
def test_wrong_values_are_refused_and_each_is_named(name: str, says: dict[str, str]) -> None:
    done = template("--values", values_file(name), "--set", ",".join(says))
    assert done.returncode == 1
    patterns = {change: ".*".join(map(re.escape, text.split("…"))) for change, text in says.items()}
    assert [change for change, pattern in patterns.items() if not re.search(pattern, done.stderr)] == [], done.stderr
    assert "hidden" not in done.stderr


def test_without_values_the_chart_names_the_missing_ones() -> None:
    done = template()
    assert done.returncode == 1
    for value in ("cache.url", "broker.url", "graph.password", "queries.modules", "flower.basicAuth"):
        assert f"{value}: " in done.stderr


@pytest.mark.parametrize("name", VALUES)
def test_passwords_are_in_secrets_only(name: str) -> None:
    others = [str(one) for one in rendered(name) if one["kind"] != "Secret"]
    assert not any("of-a-test" in one or "0123456'" in one for one in others)
    if name == "rabbitmq":
        assert secrets(name) == {}


def test_flower_does_not_get_the_worker_s_secret() -> None:
    assert secrets("keda-redis")["graph-cache-flower"] == {
        "CACHE_BROKER_URL": "redis://flower:of-a-test@redis-broker.data/3",
        "FLOWER_BASIC_AUTH": "looker:of-a-test,other:of-a-test",
        "FLOWER_COOKIE_SECRET": "of-a-test",
    }


def test_the_notes_warn_of_open_egress_and_say_how_to_reach_flower(tmp_path: Path) -> None:
    copied = Path(shutil.copytree(CHART, tmp_path / "refresher"))
    # Helm shows notes only on an installation.
    shown = 'notes: |-\n  {{- include (print $.Template.BasePath "/NOTES.txt") . | nindent 2 }}\n'
    (copied / "templates" / "shown.yaml").write_text(shown)
    only = ("--show-only", "templates/shown.yaml")
    done = template("--values", values_file("redis"), *only, chart=copied)
    assert "port-forward service/graph-refresher-flower 5555:5555" in done.stdout, done.stderr
    assert "allows egress to any address at the ports of the cache: restrict it by cache.peers" in done.stdout
    assert "No client may scrape the workers" in done.stdout
    assert "of-a-test" not in done.stdout
    narrow = template("--values", values_file("keda-redis"), *only, chart=copied).stdout
    assert "port-forward service/graph-cache-flower" in narrow
    assert "any address" not in narrow
    assert "No client may" not in narrow
