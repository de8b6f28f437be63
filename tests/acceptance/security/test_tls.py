"""TLS on every link to Redis: the whole system over it, and a wrong certificate is an error on each, never ignored."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kombu.exceptions import OperationalError

from api_client import CacheUnavailable
from api_client.config.broker_url import connection_settings
from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshReason, item_for
from api_client.trigger.broker import CeleryBroker
from refresher.embedded import ArcadeDbServer, RedisServer, free_port
from tests.acceptance.conftest import NO_GRAPH, System
from tests.servers.redis_binaries import system_redis
from tests.servers.redis_sentinels import SentinelsWithTls
from tests.support.any_reader import KINDS, local_cache_of
from tests.support.authority import HOST, Authority
from tests.support.doctor import run_check
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.usefixtures("published_once")

WRONG = {
    "another authority": r"(?i)certificate.verify.failed",
    "expired": r"(?i)certificate has expired",
    "another host": r"(?i)(mismatch|not valid for)",
}


class TlsRedis:
    """Redis servers with TLS: one with a right certificate, one each with a wrong one."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.authority = Authority(folder / "ours")
        certificates = {
            "right": self.authority.issue("right"),
            "another authority": Authority(folder / "theirs").issue("other"),
            "expired": self.authority.issue("expired", expired=True),
            "another host": self.authority.issue("elsewhere", host="redis.elsewhere.example"),
        }
        self._servers = {}
        for name, certificate in certificates.items():
            port = free_port()
            server = RedisServer.start(binary=system_redis(), extra_config=certificate.of_redis(port))
            self._servers[name] = (stack.enter_context(server), port)

    def server(self, name: str = "right") -> RedisServer:
        return self._servers[name][0]

    def url(self, name: str = "right", db: int = 0, *, trusted: bool = True, more: str = "") -> str:
        server, port = self._servers[name]
        query = f"?ssl_ca_certs={self.authority.root}{more}" if trusted else ""
        return f"rediss://:{server.password}@{HOST}:{port}/{db}{query}"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRedis]:
    with ExitStack() as stack:
        yield TlsRedis(stack, tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def running(
    tls: TlsRedis, redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """A system with a worker, all of whose links to Redis are TLS."""
    with ExitStack() as stack:
        system = System(stack, tls.server(), redis_server, arcadedb, tmp_path_factory.mktemp("system"))
        system.env |= {
            "CACHE_REDIS_URL": tls.url(db=0),
            "CACHE_BROKER_URL": tls.url(db=1),
            "CACHE_REDIS_TIMEOUT": "20s",
        }
        system.start_worker("-c", "1")
        yield system


@pytest.mark.parametrize("kind", KINDS)
def test_readers_their_local_cache_and_the_worker_work_over_tls(running: System, kind: str) -> None:
    reader = running.reader(kind, CACHE_LOCAL_MAX_ENTRIES="10")
    params = {"key": kind}
    assert reader.get("long_lived", params)["load"] == 1
    tier = local_cache_of(reader)
    eventually(lambda: reader.get("long_lived", params) and tier.entries, "the tier keeps it")
    other = running.reader(kind)
    other.invalidate("long_lived", params)
    assert reader.get("long_lived", params, fresh=True)["load"] == 2


@pytest.mark.promise("Contract and operation", "A certificate is verified")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_does_not_talk_to_a_server_with_a_wrong_certificate(
    running: System, tls: TlsRedis, kind: str, wrong: str
) -> None:
    reader = running.reader(kind, CACHE_REDIS_URL=tls.url(wrong), CACHE_LOCAL_MAX_ENTRIES="10")
    with pytest.raises(CacheUnavailable, match=WRONG[wrong]):
        reader.get("long_lived", {"key": "a"}, timeout=5)
    assert local_cache_of(reader).is_bypassed


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_systems_certificate_authorities_are_trusted_unless_the_url_names_one(
    running: System, tls: TlsRedis, kind: str
) -> None:
    reader = running.reader(kind, CACHE_REDIS_URL=tls.url(trusted=False))
    with pytest.raises(CacheUnavailable, match=r"(?i)certificate.verify.failed"):
        reader.get("long_lived", {"key": "a"}, timeout=5)


def published_to(url: str) -> None:
    broker = CeleryBroker(url, "cache")
    try:
        broker.publish([item_for(make_key("cache", "q", {}, 1), 1, RefreshReason.MANUAL)], has_waiter=False)
    finally:
        broker.close()


@pytest.mark.parametrize("wrong", WRONG)
def test_nothing_is_published_to_a_broker_with_a_wrong_certificate(tls: TlsRedis, wrong: str) -> None:
    with pytest.raises(OperationalError, match=WRONG[wrong]):
        published_to(tls.url(wrong))


def test_a_brokers_certificate_is_verified_by_default(tls: TlsRedis) -> None:
    with pytest.raises(OperationalError, match=r"(?i)certificate.verify.failed"):
        published_to(tls.url(trusted=False, db=7))  # its own: kombu keeps connections by where they lead
    published_to(tls.url(db=8))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_worker_logs_wrong_certificates_of_cache_and_broker_and_consumes_nothing(
    running: System, tls: TlsRedis, wrong: str
) -> None:
    worker = running.start_worker(ready=False, CACHE_BROKER_URL=tls.url(wrong, 1), CACHE_REDIS_URL=tls.url(wrong))
    try:
        eventually(lambda: "Cannot connect to rediss://" in worker.log_file.read_text(), "it logs the failure")
        said = worker.log_file.read_text()
    finally:
        worker.kill()
    assert "the cache at CACHE_REDIS_URL=rediss://:***@" in said
    assert said.lower().count("certificate") >= 2
    assert "ready." not in said
    assert tls.server(wrong).password not in said


def test_cache_and_broker_behind_sentinels_work_over_tls(redis_server: RedisServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        authority = Authority(tmp_path / "ours")
        sentinels = SentinelsWithTls(stack, authority)
        system = System(stack, sentinels.master, redis_server, NO_GRAPH, tmp_path)
        system.env |= {"CACHE_REDIS_URL": sentinels.url(0), "CACHE_BROKER_URL": sentinels.url(1)}
        system.start_worker("-c", "1")
        reader = system.reader("sync")
        assert reader.get("long_lived", {"key": "a"})["load"] == 1
        untrusted = {name: sentinels.url().partition("&ssl_ca")[0] for name in ("CACHE_REDIS_URL", "CACHE_BROKER_URL")}
        with pytest.raises(CacheUnavailable, match=r"(?i)certificate.verify.failed"):
            system.reader("sync", CACHE_REDIS_URL=untrusted["CACHE_REDIS_URL"]).get("long_lived", {"key": "a"})
        with pytest.raises(OperationalError, match=r"(?i)certificate.verify.failed"):
            published_to(untrusted["CACHE_BROKER_URL"])


@pytest.mark.parametrize(("check", "setting"), [("cache", "redis_url"), ("broker", "broker_url")])
def test_doctor_hints_at_a_url_scheme_that_does_not_match_the_servers_tls(
    tls: TlsRedis, redis_server: RedisServer, check: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server that waits for TLS is silent, so this is waited out.
    monkeypatch.setattr("api_client.trigger.broker.TIMEOUT_SECONDS", 5.0 * PATIENCE)
    without_tls = tls.url().replace("rediss://", "redis://").partition("?")[0]
    found = run_check(check, **{setting: without_tls})
    assert found.message.endswith("; if the server has TLS, the URL begins with rediss://")
    with_tls = redis_server.url().replace("redis://", "rediss://")
    found = run_check(check, **{setting: with_tls})
    assert found.message.endswith("; if the server has no TLS, the URL begins with redis://")


def test_tls_options_of_a_rediss_url_become_celerys_ssl_settings(tmp_path: Path) -> None:
    file = tmp_path / "a b.pem"
    file.touch()
    path = str(file).replace(" ", "%20")
    assert connection_settings("redis://h/0?ssl_x=1") == {"broker_url": "redis://h/0?ssl_x=1"}
    ssl_settings = connection_settings(f"rediss://u:p@h/0?ssl_ca_certs={path}&x=1")["broker_use_ssl"]
    assert ssl_settings == {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True, "ssl_ca_certs": str(file)}
    ssl_settings = connection_settings("rediss://h/0?ssl_cert_reqs=CERT_NONE")["broker_use_ssl"]
    assert ssl_settings == {"ssl_cert_reqs": ssl.CERT_NONE, "ssl_check_hostname": False}


@pytest.mark.parametrize(
    ("options", "left", "expected"),
    [
        ("", "", {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None}),
        ("?x=1", "?x=1", {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None}),
        ("?ssl_ca_certs={file}", "", {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None, "ca_certs": "{file}"}),
        (
            "?ssl_certfile={file}&x=1&ssl_keyfile={file}&ssl_check_hostname=false", "?x=1",
            {"cert_reqs": ssl.CERT_REQUIRED, "certfile": "{file}", "keyfile": "{file}"},
        ),
        ("?ssl_cert_reqs=none", "", {"cert_reqs": ssl.CERT_NONE}),
    ],
)  # fmt: skip
def test_tls_options_of_an_amqps_url_become_ssl_settings_and_are_removed_from_the_url(
    tmp_path: Path, options: str, left: str, expected: dict[str, object]
) -> None:
    file = tmp_path / "a.pem"
    file.touch()
    settings = connection_settings("amqps://u:p@h:1//" + options.format(file=file))
    ssl_settings = {name: str(file) if value == "{file}" else value for name, value in expected.items()}
    assert settings == {"broker_url": f"amqps://u:p@h:1//{left}", "broker_use_ssl": ssl_settings}
