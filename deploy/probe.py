"""Probe that proves that a worker consumes: sends an empty refresh through the queue, and waits for its end.

::

    python deploy/probe.py                 some worker consumes the queue for misses
    python deploy/probe.py --own-queue     the worker of this host consumes its own queue NAMESPACE.probe.HOSTNAME

A process that runs and answers a ping may have stopped consuming. The probe needs only the broker, neither cache nor
graph: an unreachable graph is no fault of the worker. Exit codes: 0 it consumes, 1 it does not, or no broker replies.
"""

import argparse
import socket
import sys
import time
from uuid import uuid4

from celery import Celery
from kombu import Queue
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from api_client import CacheError
from api_client.config.broker import plain_queue, queue_for
from api_client.protocol import messages
from api_client.trigger.broker import fault_text
from refresher import WorkerSettings
from refresher.ops.permissions import USERS_GUIDE, is_forbidden
from refresher.worker.app import celery_settings

RESEND_SECONDS = 5.0


def main() -> int:
    """Probe; return the exit code."""
    parser = argparse.ArgumentParser(description="Exit 0 when a worker consumes its queue.")
    parser.add_argument("--own-queue", action="store_true", help="probe the worker of this host, by its own queue")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    arguments = parser.parse_args()
    settings = WorkerSettings.from_env()
    host = socket.gethostname() if arguments.own_queue else ""
    queue = (
        plain_queue(f"{settings.namespace}.probe.{host}")
        if host
        else queue_for(settings.namespace, settings.broker_url, has_waiter=True)
    )
    app = Celery("refresher-probe", set_as_current=False)
    app.conf.update(celery_settings(settings))
    began = time.monotonic()
    if probe(app, queue, host, began + arguments.timeout):
        sys.stdout.write(f"a worker consumed from {queue.name} within {time.monotonic() - began:.1f} s\n")
        return 0
    sys.stderr.write(f"error: no worker consumed from {queue.name} within {arguments.timeout:g} s\n")
    return 1


def probe(app: Celery, queue: Queue, host: str, deadline: float) -> bool:
    """Send messages until a worker (on ``host``, unless empty) reports the end of one, or the time is over."""
    task_ids: list[str] = []
    ended: list[str] = []

    def on_succeeded(event: dict[str, str]) -> None:
        if event["uuid"] in task_ids and event["hostname"].endswith(f"@{host}" if host else ""):
            ended.append(event["uuid"])

    with app.connection_for_write() as connection:
        receiver = app.events.Receiver(connection, handlers={"task-succeeded": on_succeeded})
        # Without a request for the workers' heartbeats, which is remote control.
        with receiver.consumer_context(wakeup=False) as (events, channel, _):
            while not ended and time.monotonic() < deadline:
                # The first may end before the broker has registered this listener.
                task_ids.append(send(app, queue, deadline))
                resend_at = min(time.monotonic() + (RESEND_SECONDS if len(task_ids) > 1 else 1.0), deadline)
                while not ended and time.monotonic() < resend_at:
                    try:
                        events.drain_events(timeout=0.2)
                    except TimeoutError:
                        continue
            if host:
                channel.queue_purge(queue.name)
    return bool(ended)


def send(app: Celery, queue: Queue, deadline: float) -> str:
    """Send a message without items, which expires; return the task's id."""
    task_id = str(uuid4())
    left = max(1.0, deadline - time.monotonic())
    app.send_task(
        messages.TASK_NAME, args=(messages.encode([]),), task_id=task_id, queue=queue,
        # Else Celery publishes for a direct exchange to the default one, which leads to every queue.
        exchange=queue.exchange.name, routing_key=queue.routing_key,
        expires=left, retry=False, shadow="probe", argsrepr="probe", kwargsrepr="{}",
    )  # fmt: skip
    return task_id


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CacheError as error:
        sys.exit(f"error: {error}")
    except (OperationalError, RedisError, OSError) as error:
        hint = (
            f": sign in as probe, on RabbitMQ as worker ({USERS_GUIDE})"
            if is_forbidden(error) or is_forbidden(error.__cause__)
            else ""
        )
        sys.exit(f"error: the broker can't be used: {fault_text(error)}{hint}")
