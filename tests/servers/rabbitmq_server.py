"""A real RabbitMQ for tests, with operations that only they need."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import kombu

from api_client.config.broker import queues
from benchmarks.apparatus.rabbitmq_server import RabbitMqServer as EmbeddedRabbitMq
from refresher.embedded.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RabbitMqServer(EmbeddedRabbitMq):
    """RabbitMQ with no queue, no plugin and one user."""

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
