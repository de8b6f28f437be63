"""RabbitMQ as a child process. Unlike the embedded servers it has no wheel: install it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import kombu

from api_client.config.broker import queues
from refresher.embedded.errors import ServerMissing
from refresher.embedded.ports import free_port
from refresher.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEBIAN_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one on PATH there only runs as its own user
_ANSWER_SECONDS = 1.0


class RabbitMqServer(EmbeddedServer):
    """RabbitMQ with no queue, no plugin and one user."""

    title: ClassVar[str] = "RabbitMQ"
    port_count: ClassVar[int] = 3  # AMQP, Erlang's distribution, Erlang's port mapper
    user: ClassVar[str] = "refresher"

    def __init__(self, program: str, start_seconds: float) -> None:
        super().__init__(start_seconds)
        self._program = program

    @classmethod
    def start(cls, *, start_seconds: float = 90.0) -> Self:
        """Start a server and wait until its user can connect.

        Raises:
            ServerMissing: there is no rabbitmq-server.
            ServerDidNotStart: it ended or did not answer in time.
        """
        program = str(_DEBIAN_PROGRAM) if _DEBIAN_PROGRAM.exists() else shutil.which("rabbitmq-server")
        if program is None:
            raise ServerMissing("no rabbitmq-server", "install RabbitMQ (Debian: rabbitmq-server)")
        server = cls(program, start_seconds)
        server._launch_or_clean_up()
        return server

    @property
    def url(self) -> str:
        """Address for Celery."""
        return f"amqp://{self.user}:{self.password}@{self.host}:{self.ports[0]}//"

    def knows_on_disk(self, namespace: str) -> bool:
        """Return whether both quorum queues of a namespace survive a kill.

        RabbitMQ 3.10 writes a new queue's name to disk half a second late. If it is killed before, the queue never
        replies again, without any error.
        """
        written = b"".join(path.read_bytes() for path in (self.directory / "data").rglob("names.dets"))
        return all(queue.encode() in written for queue in (f"{namespace}.refresh.quorum", f"{namespace}.refresh-miss"))

    def forget_queues(self, namespace: str) -> None:
        """Delete the queues of a namespace, as if they had never been used."""
        with kombu.Connection(self.url) as connection:
            for queue in queues(namespace, self.url):
                connection.default_channel.queue_delete(queue.name)

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        amqp, distribution, mapper = self.ports
        config = self.directory / "rabbitmq.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"listeners.tcp.1 = {self.host}:{amqp}\ndefault_user = {self.user}\ndefault_pass = {self.password}\n"
        )
        env = {
            **os.environ,
            "HOME": str(self.directory),  # where Erlang keeps its cookie
            "RABBITMQ_CONFIG_FILE": str(config.with_suffix("")),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_NODENAME": f"test{amqp}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": self.host,
        }
        # Erlang would start its port mapper as a daemon that outlives it; this one is in the group, and goes with it.
        return ["/bin/sh", "-c", f'epmd & exec "{self._program}"'], env

    def _answers(self) -> bool:
        try:
            with kombu.Connection(self.url, connect_timeout=_ANSWER_SECONDS) as connection:
                connection.connect()
        except Exception:  # noqa: BLE001 - amqp raises a dozen kinds while a server comes up
            return False
        return True


class ManagedRabbitMq(RabbitMqServer):
    """The same with the management plugin, and a read-only user: ``monitor``, with the server's password."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._management_port = free_port()

    @property
    def api_url(self) -> str:
        """Return the URL of the plugin's API, as the read-only user."""
        return f"http://monitor:{self.password}@{self.host}:{self._management_port}/api/"

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        prepared = super()._prepare()
        (self.directory / "enabled_plugins").write_text("[rabbitmq_management].\n")
        monitor = {"name": "monitor", "password": self.password, "tags": "management"}
        rights = {"configure": "^$", "write": "^$", "read": "^$", "vhost": "/"}
        definitions = self.directory / "definitions.json"
        definitions.touch(mode=0o600)
        definitions.write_text(json.dumps(self._definitions(monitor, rights)))
        with (self.directory / "rabbitmq.conf").open("a") as config:
            config.write(
                f"management.tcp.ip = {self.host}\nmanagement.tcp.port = {self._management_port}\n"
                f"load_definitions = {definitions}\n"
            )
        return prepared

    def _definitions(self, monitor: dict[str, str], rights: dict[str, str]) -> dict[str, Any]:
        # With definitions there is no default user.
        own = {"name": self.user, "password": self.password, "tags": ""}
        everything = {"configure": ".*", "write": ".*", "read": ".*", "vhost": "/"}
        return {
            "vhosts": [{"name": "/"}],
            "users": [own, monitor],
            "permissions": [{"user": self.user} | everything, {"user": "monitor"} | rights],
        }
