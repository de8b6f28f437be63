"""Invalid values are refused with a message that says what to do; passwords are in Secrets only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.chart import CHART, VALUES, rendered, secrets, template, values_file

# A values file, the change to it, and the expected error message.
REFUSED = [
    ("redis", "worker.env.CACHE_XFTCH_BETA=2", "CACHE_XFTCH_BETA"),
    ("redis", "worker.env.CACHE_XFETCH_TIMEOUT=60s", "CACHE_XFETCH_TIMEOUT"),
    ("redis", "wroker.replicas=3", "wroker"),
    ("redis", "broker.kind=kafka", "rabbitmq"),
    ("redis", "broker.kind=rabbitmq", "broker.kind: rabbitmq does not go with broker.url"),
    ("redis", "broker.url=amqp://broker", "broker.kind: redis does not go with broker.url"),
    ("redis", "cache.url=memcached://u:hidden@cache", "cache.url: expected redis://"),
    ("redis", "cache.url=", "cache.url: where is the cache?"),
    ("redis", "broker.url=", "broker.url: where is the broker?"),
    ("redis", "graph.password=", "graph.password: of the user graph.user"),
    ("redis", "graph.uri=bolt://neo4j:hidden@neo4j:7687", "graph.uri: expected bolt://host:port"),
    ("redis", "queries.modules=null", "queries.modules: the modules that use @query"),
    ("redis", "queries.modules[0]=my-queries.py", "pattern"),
    ("redis", r"queries.files.my-queries\.py=pass", "my-queries.py"),
    ("redis", "namespace=a b", "pattern"),
    ("redis", "worker.budgetSeconds=0", "budgetSeconds"),
    ("redis", "worker.budgetSeconds=30s", "number"),
    ("redis", "worker.terminationGracePeriodSeconds=45", "is not above the hard limit of a refresh, which is 45 s"),
    ("redis", "worker.replicas=-1", "replicas"),
    ("redis", "worker.queues[0]=others", "misses"),
    ("redis", "pod.user=0", "user"),
    ("redis", "flower.basicAuth=", "nobody looks at Flower without a password"),
    ("redis", "flower.basicAuth=hidden", "flower.basicAuth: expected user:password"),
    ("redis", "flower.brokerUrl=kafka://u:hidden@broker", "flower.brokerUrl: expected redis://"),
    ("redis", "broker.url=kafka://u:hidden@broker", "broker.url: expected redis://"),
    ("redis", "autoscaling.keda.queue.rabbitmq.url=u:hidden@broker", "rabbitmq.url: expected amqp://"),
    ("redis", "flower.oauth.provider=flower.views.auth.GithubLoginHandler", "FLOWER_OAUTH2_KEY"),
    ("redis", "flower.ingress.enabled=true,flower.ingress.host=f.example.org", "in the clear"),
    ("redis", "flower.ingress.enabled=true", "flower.ingress.host: under which name?"),
    ("redis", "secrets.worker=ours", "leave cache.url, broker.url, graph.password and feed.password empty"),
    ("redis", "feed.user=feed,feed.password=hidden", "feed.user: goes with feed.enabled=true"),
    ("redis", "feed.enabled=true,feed.user=feed", "feed.password: goes with feed.user"),
    ("redis", "worker.env.CACHE_FEED=true", "CACHE_FEED"),
    ("redis", "secrets.flower=ours", "leave flower.basicAuth"),
    ("redis", "metrics.port=9465", "metrics.port: is worker.healthPort, too"),
    ("redis", "metrics.enabled=false,metrics.podMonitor.enabled=true", "there is nothing to scrape"),
    ("redis", "metrics.port=70000", "port"),
    ("redis", "certificates.graphFile=ca.crt", "certificates.secret, which is empty"),
    ("redis", "certificates.graphFile=ca.crt,certificates.secret=ours", "goes with bolt+s://"),
    ("redis", "autoscaling.kind=keda", "autoscaling.keda.queue.redis.address: the broker as KEDA finds it"),
    ("redis", "autoscaling.kind=hpa,autoscaling.minReplicas=11", "is more than autoscaling.maxReplicas"),
    ("redis", "autoscaling.minReplicas=0", "minReplicas"),
    ("keda-redis", "autoscaling.keda.queue.enabled=false,autoscaling.keda.leadTime.enabled=false", "scales by what?"),
    ("keda-redis", "autoscaling.keda.leadTime.prometheus=", "which Prometheus"),
    ("keda-redis", "queries.existingConfigMap=ours", "give one of the two"),
    ("keda-redis", "secrets.scaler=ours", "says who KEDA is"),
    ("rabbitmq", "autoscaling.keda.queue.triggerAuthentication=ours", "give one of the two"),
    ("rabbitmq", "secrets.scaler=", "autoscaling.keda.queue.rabbitmq.url: the broker as KEDA finds it"),
    ("rabbitmq", "secrets.flower=,flower.basicAuth=a:b", "flower.brokerUrl: where is the broker?"),
    ("rabbitmq", "cache.ports=null", "cache.ports: the network policy has to name them"),
    ("rabbitmq", "broker.ports=null", "broker.ports: the network policy has to name them"),
    ("keda-sentinel", "broker.ports=null", "broker.ports: behind Sentinels, theirs and those of the servers"),
    ("keda-sentinel", "autoscaling.keda.queue.redis.sentinelMaster=", "KEDA needs the name of their master"),
    ("keda-sentinel", "secrets.scaler=ours", "says who KEDA is"),
    ("sentinel-hpa", "cache.ports=null", "cache.ports: behind Sentinels, theirs and those of the servers"),
]


@pytest.mark.parametrize(("name", "changes", "says"), REFUSED, ids=[f"{name}-{change}" for name, change, _ in REFUSED])
def test_a_wrong_value_is_refused_and_named(name: str, changes: str, says: str) -> None:
    done = template("--values", values_file(name), "--set", changes)
    assert done.returncode == 1
    assert says in done.stderr
    assert "hidden" not in done.stderr


def test_without_values_the_chart_names_the_first_missing_value() -> None:
    done = template()
    assert done.returncode == 1
    assert "cache.url: where is the cache?" in done.stderr


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
