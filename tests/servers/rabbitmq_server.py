"""A real RabbitMQ for tests, and what only they ask of it."""

from __future__ import annotations

import kombu

from api_client.broker_settings import queues
from refresher.embedded.rabbitmq_server import RabbitMqServer as EmbeddedRabbitMq


class RabbitMqServer(EmbeddedRabbitMq):
    """RabbitMQ with no queue, no plugin and one user."""

    def knows_on_disk(self, namespace: str) -> bool:
        """Tell whether both quorum queues of a namespace outlive a kill.

        RabbitMQ 3.10 writes a new queue's name down half a second late. When it is killed before, the queue answers
        nobody any more, and nobody is told why.
        """
        written = b"".join(path.read_bytes() for path in (self.directory / "data").rglob("names.dets"))
        return all(queue.encode() in written for queue in (f"{namespace}.refresh.quorum", f"{namespace}.refresh-miss"))

    def forget_queues(self, namespace: str) -> None:
        """Delete the queues of a namespace, as if nobody had used them."""
        with kombu.Connection(self.url) as connection:
            for queue in queues(namespace, self.url):
                connection.default_channel.queue_delete(queue.name)
