"""RabbitMQ with TLS and one user per component: the documented permissions, by what they allow and what they deny."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import amqp
import kombu
import pytest
from kombu.exceptions import OperationalError
from typer.testing import CliRunner

from api_client.config.broker import queue_for
from api_client.config.broker_url import connection_settings
from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshReason, item_for
from api_client.trigger.broker import CeleryBroker
from refresher.cli.commands import app
from refresher.embedded import ArcadeDbServer, RedisServer
from refresher.embedded.ports import free_port
from tests.acceptance.conftest import ROOT, System, system_of_module
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.authority import HOST, Authority
from tests.support.doctor import wait_for_one_worker
from tests.support.redis_users import make_users

pytestmark = pytest.mark.rabbitmq

NAMESPACE = "cache"
REFRESHES = queue_for(NAMESPACE, "amqps://", has_waiter=False).name
UNUSED = "unused"  # a vhost that no worker knows
OF_AN_APPLICATION = "application"
HASHING = "rabbit_password_hashing_sha256"
VHOSTS = ("/", UNUSED, OF_AN_APPLICATION)


class RabbitMqWithUsers(RabbitMqServer):
    """A RabbitMQ with the documented users and their permissions, and a port with TLS."""

    authority: Authority

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.tls_port = free_port()
        self.passwords: dict[str, str] = {}

    def url_of(self, user: str, *, host: str = HOST, trusted: Path | None = None, vhost: str = "/") -> str:
        """The URL of a user, over TLS; ``trusted`` is another authority than the server's."""
        url = f"amqps://{user}:{self.passwords[user]}@{host}:{self.tls_port}/{vhost}"
        return f"{url}?ssl_ca_certs={trusted or self.authority.root}"

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        prepared = super()._prepare()
        self.authority = Authority(self.directory / "authority")
        certificate = self.authority.issue("server")
        definitions = self.directory / "definitions.json"
        definitions.touch(mode=0o600)
        definitions.write_text(json.dumps(self._definitions()))
        with (self.directory / "rabbitmq.conf").open("a") as config:
            config.write(
                f"load_definitions = {definitions}\n"
                f"listeners.ssl.1 = {self.host}:{self.tls_port}\n"
                f"ssl_options.cacertfile = {self.authority.root}\n"
                f"ssl_options.certfile = {certificate.certificate}\n"
                f"ssl_options.keyfile = {certificate.key}\n"
                "ssl_options.verify = verify_none\n"
            )
        return prepared

    def _definitions(self) -> dict[str, Any]:
        made = make_users(self.directory / "users", "--broker", "rabbitmq")
        self.passwords = {user: password for (server, user), password in made.items() if server == "broker"}
        definitions: dict[str, Any] = json.loads((self.directory / "users" / "broker.json").read_text())
        everywhere = [{**one, "vhost": vhost} for one in definitions["permissions"] for vhost in VHOSTS]
        own = {"user": self.user, "configure": ".*", "write": ".*", "read": ".*"}
        everywhere += [{**own, "vhost": vhost} for vhost in VHOSTS]
        self.passwords[self.user] = self.password
        users = [
            *definitions["users"],
            {"name": self.user, "tags": "", "hashing_algorithm": HASHING, "password_hash": hashed(self.password)},
        ]
        return {"vhosts": [{"name": vhost} for vhost in VHOSTS], "users": users, "permissions": everywhere}


def hashed(password: str) -> str:
    salt = secrets.token_bytes(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


@pytest.fixture(scope="module")
def server() -> Iterator[RabbitMqWithUsers]:
    """A RabbitMQ beside the session's: with TLS, users and permissions of its own."""
    with RabbitMqWithUsers.start() as started:
        yield started


@pytest.fixture(scope="module")
def running(
    server: RabbitMqWithUsers, redis_server: RedisServer, arcadedb: ArcadeDbServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[System]:  # fmt: skip
    with system_of_module(redis_server, arcadedb, tmp_path_factory) as system:
        system.env |= {"CACHE_BROKER_URL": server.url_of("publisher")}
        system.start_worker("-c", "1", CACHE_BROKER_URL=server.url_of("worker"))
        yield system


def test_reader_and_worker_work_over_tls_with_their_documented_permissions(running: System) -> None:
    client = running.client()
    assert client.get("long_lived", {"key": "a"})["load"] == 1
    client.refresh("long_lived", {"key": "a"}, wait=True)
    assert client.explain("long_lived", {"key": "a"}).state == "fresh"
    # A retry through the broker is a delay of RabbitMQ's.
    running.control.rpush("script:late", "fail", "fail", "ok")
    assert client.get("long_lived", {"key": "late"})["load"] == 3


def test_a_worker_in_an_applications_celery_app_trusts_the_same_certificate_authority(
    running: System, server: RabbitMqWithUsers
) -> None:
    broker = {"CACHE_BROKER_URL": server.url_of(server.user, vhost=OF_AN_APPLICATION)}
    client = running.client(**broker)
    running.control.rpush("script:own", "fail", "ok")
    worker = running.start_worker("-c", "1", app="tests.support.host_app", C_FORCE_ROOT="1", **broker)
    try:
        assert client.get("long_lived", {"key": "own"})["load"] == 2  # with a delay of RabbitMQ's, too
    finally:
        worker.kill()


def test_one_command_writes_the_urls_and_the_rights_of_a_namespace_and_vhost(
    server: RabbitMqWithUsers, tmp_path: Path
) -> None:
    (tmp_path / "passwords").write_text("".join(f"broker {user} {word}\n" for user, word in server.passwords.items()))
    address = f"amqps://{HOST}:{server.tls_port}/{UNUSED}?ssl_ca_certs={server.authority.root}"
    options = ("--broker", "rabbitmq", "--namespace", "tenant.a", "--addresses", "cache:6379", address)
    passwords = make_users(tmp_path, *options)
    definitions = json.loads((tmp_path / "broker.json").read_text())
    assert definitions["vhosts"] == [{"name": UNUSED}]
    [publisher] = [one for one in definitions["permissions"] if one["user"] == "publisher"]
    rights = {"configure": "^$", "write": r"^tenant\.a\.refresh(-miss)?\.quorum$", "read": "^$"}
    assert publisher == {"user": "publisher", "vhost": UNUSED, **rights}
    assert not any(password in json.dumps(definitions) for password in passwords.values())
    for component in ("reader", "invalidator", "worker", "operator", "flower", "probe"):
        lines = (tmp_path / f"{component}.env").read_text().splitlines()
        url = dict(line.split("=", 1) for line in lines)["CACHE_BROKER_URL"]
        settings = connection_settings(url)
        with kombu.Connection(settings["broker_url"], ssl=settings["broker_use_ssl"]) as connection:
            connection.ensure_connection(max_retries=1)


@pytest.mark.usefixtures("patient_commands")
def test_an_operator_may_query_workers_and_queue_lengths(
    running: System, server: RabbitMqWithUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_one_worker(monkeypatch)
    env = {**running.env, "CACHE_BROKER_URL": server.url_of("operator")}
    assert doctor_of(env) == {"broker": "ok", "workers": "ok"}
    env["CACHE_BROKER_URL"] = server.url_of("publisher")
    assert doctor_of(env) == {"broker": "ok", "workers": "warning"}
    assert doctor_of(env, "--as-reader") == {"broker": "ok", "skipped": "ok"}


def doctor_of(env: dict[str, str], *options: str) -> dict[str, str]:
    output = CliRunner().invoke(app, ["doctor", "--json", *options], env=env).stdout
    checks = {"broker", "workers", "skipped"}
    return {one["check"]: one["level"] for one in json.loads(output)["findings"] if one["check"] in checks}


def test_the_probe_detects_a_consuming_worker_with_its_users_permissions(
    running: System, server: RabbitMqWithUsers
) -> None:
    env = {**running.env, "CACHE_BROKER_URL": server.url_of("probe")}
    own = f"{NAMESPACE}.probe.{socket.gethostname()}"
    name = ("-n", "probed@%h", "-c", "1", "-Q", f"{own},{REFRESHES}")
    worker = running.start_worker(*name, CACHE_BROKER_URL=server.url_of("worker"))
    try:
        for option in ((), ("--own-queue",)):
            command = [sys.executable, ROOT / "deploy/probe.py", *option]
            probed = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
            assert probed.returncode == 0, probed.stderr
    finally:
        worker.kill()


def test_publishing_to_a_queue_that_no_worker_has_declared_fails_or_declares_it(server: RabbitMqWithUsers) -> None:
    item = item_for(make_key(NAMESPACE, "q", {}, 1), 1, RefreshReason.MANUAL)
    with (
        closing(CeleryBroker(server.url_of("publisher", vhost=UNUSED), NAMESPACE)) as broker,
        closing(CeleryBroker(server.url_of("worker", vhost=UNUSED), NAMESPACE)) as others,
    ):
        assert broker.waiting() == 0

        def is_rejected() -> None:
            for _ in range(3):  # each time, for kombu keeps connections
                with pytest.raises(
                    OperationalError, match=f"no queue '{REFRESHES}' yet, and this user may not declare it"
                ):
                    broker.publish([item], has_waiter=False)
                assert broker.waiting() == 0  # on the connection of the refused publication

        is_rejected()
        with others.app.connection_for_write() as connection:
            queue_for(NAMESPACE, "amqps://", has_waiter=False).exchange(connection.channel()).declare()
        is_rejected()  # also with an exchange that leads nowhere
        others.publish([item], has_waiter=False)
        broker.publish([item], has_waiter=False)
        assert broker.waiting() == others.waiting() == 2


def published_to(url: str) -> None:
    broker = CeleryBroker(url, NAMESPACE)
    item = item_for(make_key(NAMESPACE, "q", {}, 1), 1, RefreshReason.MANUAL)
    try:
        broker.publish([item], has_waiter=False)
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("host", "is_ours", "why"),
    [(HOST, False, "certificate"), ("127.1", True, "(?i)mismatch|not valid for")],
    ids=["another authority", "another host"],
)
def test_nothing_is_published_where_the_certificate_is_wrong(
    server: RabbitMqWithUsers, tmp_path: Path, host: str, is_ours: bool, why: str
) -> None:
    trusted = None if is_ours else Authority(tmp_path).root
    # The worker's user: kombu keeps the publisher's connections, by where they lead.
    with pytest.raises(OperationalError, match=why):
        published_to(server.url_of("worker", host=host, trusted=trusted))


def test_without_ssl_ca_certs_the_systems_certificate_authorities_are_trusted(
    server: RabbitMqWithUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url_of(server.user).partition("?")[0]  # a user of its own, as above
    with pytest.raises(OperationalError, match="certificate"):
        published_to(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(server.authority.root))
    published_to(url)


def declare(channel: Any, name: str) -> None:
    channel.queue_declare(name, durable=True)


def publish(channel: Any, exchange: str) -> None:
    channel.basic_publish_confirm(amqp.Message("x"), exchange=exchange, routing_key="x")


def consume(channel: Any, queue: str) -> None:
    channel.basic_get(queue)


def purge(channel: Any, queue: str) -> None:
    channel.queue_purge(queue)


DENIED: tuple[tuple[str, Callable[[Any, str], None], str], ...] = (
    ("publisher", declare, REFRESHES),
    ("publisher", declare, "elsewhere"),
    ("publisher", consume, REFRESHES),
    ("publisher", purge, REFRESHES),
    ("publisher", publish, "other.refresh.quorum"),
    ("publisher", publish, "celery.pidbox"),
    ("publisher", publish, "celeryev"),
    ("publisher", publish, ""),
    ("publisher", consume, "worker-1@test.celery.pidbox"),
    ("operator", declare, REFRESHES),
    ("operator", consume, REFRESHES),
    ("operator", consume, "worker-1@test.celery.pidbox"),
    ("operator", publish, "celeryev"),
    ("worker", declare, "elsewhere"),
    ("worker", publish, "amq.topic"),
    ("flower", publish, REFRESHES),
    ("flower", consume, REFRESHES),
    ("flower", declare, REFRESHES + "x"),
)


@pytest.mark.parametrize(("user", "act", "name"), DENIED)
def test_a_user_is_denied(
    running: System, server: RabbitMqWithUsers, user: str, act: Callable[[Any, str], None], name: str
) -> None:
    settings = connection_settings(server.url_of(user))
    with (
        kombu.Connection(settings["broker_url"], ssl=settings["broker_use_ssl"]) as connection,
        pytest.raises(connection.channel_errors, match="ACCESS_REFUSED"),
    ):
        act(connection.channel(), name)
