"""Private Celery apps, invisible to an application's own Celery.

A Celery app normally affects its whole process: it is the thread's current app, through Django the default of all
threads, and it sets the limit of all connection pools. None of that applies here. Callers import this module where they
need it, because importing Celery takes 50 ms.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from celery.app.amqp import AMQP
from celery.app.base import Celery
from kombu.connection import ConnectionPool
from kombu.pools import ProducerPool
from kombu.utils.functional import lazy

from api_client.config.broker import publisher_settings

if TYPE_CHECKING:

    class _Celery:
        """The part of Celery's class in use here, which has no types."""

        def __init__(self, main: str, **options: Any) -> None: ...
        def connection_for_read(self, url: Any = None, **options: Any) -> Any: ...
        def connection_for_write(self, url: Any = None, **options: Any) -> Any: ...
        def close(self) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    class _Amqp:
        """The part of Celery's AMQP class in use here."""

        app: Any

    class _Pool:
        """The part of kombu's pool class in use here."""

        _closed: bool

        def __init__(self, connection: Any, limit: int) -> None: ...
        def release(self, resource: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
else:
    _Celery, _Amqp, _Pool = Celery, AMQP, ConnectionPool


class PrivateApp(_Celery):
    """An app that is never current or default, and connects only to the broker of its settings.

    Celery's own class prefers the environment's CELERY_BROKER_URL, which may name another broker, with TLS options that
    py-amqp does not know.
    """

    # Django's fixup makes the process's first app the default of all threads, and changes sys.path.
    builtin_fixups: frozenset[str] = frozenset()
    control_cls = "api_client.trigger.private_control:PrivateControl"
    broker_of_settings: str = ""

    @classmethod
    def configured(cls, name: str, settings: dict[str, Any]) -> Self:
        """Return an app with these Celery settings."""
        app = cls(name, set_as_current=False, loader="app")
        app.conf.update(settings)
        app.broker_of_settings = settings["broker_url"]
        return app

    def connection_for_read(self, url: Any = None, **options: Any) -> Any:
        """Return a connection for consuming."""
        return super().connection_for_read(self.broker_of_settings or url, **options)

    def connection_for_write(self, url: Any = None, **options: Any) -> Any:
        """Return a connection for publishing."""
        return super().connection_for_write(self.broker_of_settings or url, **options)


class PublishingApp(PrivateApp):
    """An app with its own pools, which `close` closes; each process has its own, however it was forked."""

    amqp_cls = "api_client.trigger.private_app:PrivateAmqp"

    def __init__(self, main: str, **options: Any) -> None:
        super().__init__(main, **options)
        # Keyed by process, since a fork need not call Python's hooks (uWSGI's does not).
        self._pools_by_pid: dict[int, PrivatePools] = {}

    @classmethod
    def to(cls, broker_url: str, timeout_seconds: float) -> Self:
        """Return an app that publishes to a broker, each step within ``timeout_seconds``."""
        return cls.configured("refresher-publisher", publisher_settings(broker_url, timeout_seconds))

    @property
    def pool(self) -> ConnectionPool:
        """The app's connections. Celery's own pools belong to the process, with one limit for all apps."""
        return self.pools.connections

    @property
    def pools(self) -> PrivatePools:
        """The process's pools, made at the first use, without a lock that a fork could leave held."""
        pid = os.getpid()
        pools = self._pools_by_pid.get(pid)
        if pools is None:
            made = PrivatePools(self.connection_for_write(), self.conf.broker_pool_limit)
            pools = self._pools_by_pid.setdefault(pid, made)
            for other in self._pools_by_pid.keys() - {pid}:
                _leave_to_parent(self._pools_by_pid.pop(other, None))
        return pools

    def close(self) -> None:
        """Close the connections, those in use as soon as their use ends."""
        while self._pools_by_pid:
            with suppress(KeyError):
                pid, pools = self._pools_by_pid.popitem()
                if pid == os.getpid():
                    pools.close()
                else:
                    _leave_to_parent(pools)
        super().close()


class PrivateAmqp(_Amqp):
    """Celery's AMQP part for a `PublishingApp`, over the app's own pools."""

    @property
    def producer_pool(self) -> ProducerPool:
        """The producers, over the app's connections."""
        return self.app.pools.producers


class PrivatePools:
    """One app's connections to its broker, and producers over them."""

    def __init__(self, connection: Any, limit: int) -> None:
        self.connections: Any = _Connections(connection, limit)
        self.producers: Any = _Producers(self.connections, limit=limit)

    def close(self) -> None:
        """Close idle connections now, and the rest when their use ends."""
        self.connections.close()


class _Connections(_Pool):
    # kombu would close a child's copies by shutting down the sockets, which the parent shares.
    close_after_fork = False

    def close(self) -> None:
        self._closed = True
        while self._resource.queue:
            with suppress(IndexError):
                _close(self._resource.queue.pop())

    def release(self, resource: Any) -> None:
        super().release(resource)
        if self._closed:
            self.close()


class _Producers(ProducerPool):  # type: ignore[misc, unused-ignore]
    close_after_fork = False


def _close(connection: Any) -> None:
    if isinstance(connection, lazy):
        return
    # py-amqp waits for a confirmation that a silent broker does not send.
    with suppress(Exception):
        connection._close()  # noqa: SLF001 - close() of a pooled connection gives it back


def _leave_to_parent(pools: PrivatePools | None) -> None:
    """Drop a parent process's connections: close this process's file descriptors without telling the broker.

    redis-py's connections do so when they are garbage-collected; py-amqp would shut down the parent's connection.
    """
    if pools is None:
        return
    for connection in (*pools.connections._dirty, *pools.connections._resource.queue):  # noqa: SLF001
        established = None if isinstance(connection, lazy) else connection._connection  # noqa: SLF001
        socket = getattr(getattr(established, "_transport", None), "sock", None)  # only py-amqp's have one
        if socket is not None:
            socket.close()
