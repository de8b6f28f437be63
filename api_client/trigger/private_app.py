"""Private Celery apps, invisible to an application's own Celery.

By default a Celery app is known to its whole process: as the thread's current one, through Django as the default of all
threads, by the limit of all connection pools. None of that applies here. Imported where it is needed: importing Celery
takes 50 ms.
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
        """The part in use of Celery's class, which has no types."""

        def __init__(self, main: str, **options: Any) -> None: ...
        def connection_for_read(self, url: Any = None, **options: Any) -> Any: ...
        def connection_for_write(self, url: Any = None, **options: Any) -> Any: ...
        def close(self) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    class _Amqp:
        """The same of its AMQP part."""

        app: Any

    class _Pool:
        """The same of kombu's pools."""

        _closed: bool

        def __init__(self, connection: Any, limit: int) -> None: ...
        def release(self, resource: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
else:
    _Celery, _Amqp, _Pool = Celery, AMQP, ConnectionPool


class PrivateApp(_Celery):
    """An app that is never current or default, and connects to the broker of its settings, to no other.

    Celery's own takes CELERY_BROKER_URL of the environment first: that may name another broker, and may have options of
    TLS that py-amqp does not know.
    """

    # Django's makes the first app of the process the default of all threads, and changes sys.path.
    builtin_fixups: frozenset[str] = frozenset()
    control_cls = "api_client.trigger.private_control:PrivateControl"
    broker_of_settings: str = ""

    @classmethod
    def configured(cls, name: str, settings: dict[str, Any]) -> Self:
        """Return an app with these settings of Celery."""
        app = cls(name, set_as_current=False, loader="app")
        app.conf.update(settings)
        app.broker_of_settings = settings["broker_url"]
        return app

    def connection_for_read(self, url: Any = None, **options: Any) -> Any:
        """Return a connection to consume by."""
        return super().connection_for_read(self.broker_of_settings or url, **options)

    def connection_for_write(self, url: Any = None, **options: Any) -> Any:
        """Return a connection to publish by."""
        return super().connection_for_write(self.broker_of_settings or url, **options)


class PublishingApp(PrivateApp):
    """An app with pools of its own, closed by `close`; each process has its own, however it was forked."""

    amqp_cls = "api_client.trigger.private_app:PrivateAmqp"

    def __init__(self, main: str, **options: Any) -> None:
        super().__init__(main, **options)
        # By process: a fork need not call Python's hooks (uWSGI's does not).
        self._pools_by_pid: dict[int, PrivatePools] = {}

    @classmethod
    def to(cls, broker_url: str, timeout_seconds: float) -> Self:
        """Return an app that publishes to a broker, each step within ``timeout_seconds``."""
        return cls.configured("refresher-publisher", publisher_settings(broker_url, timeout_seconds))

    @property
    def pool(self) -> ConnectionPool:
        """The connections. Celery's own are the process's, and their limit is one for all apps."""
        return self.pools.connections

    @property
    def pools(self) -> PrivatePools:
        """The process's pools, made at the first use. Without a lock, which a fork could leave held."""
        pid = os.getpid()
        pools = self._pools_by_pid.get(pid)
        if pools is None:
            made = PrivatePools(self.connection_for_write(), self.conf.broker_pool_limit)
            pools = self._pools_by_pid.setdefault(pid, made)
            for other in self._pools_by_pid.keys() - {pid}:
                _leave_to_parent(self._pools_by_pid.pop(other, None))
        return pools

    def close(self) -> None:
        """Close the connections; those in use are closed when their use ends."""
        while self._pools_by_pid:
            with suppress(KeyError):
                pid, pools = self._pools_by_pid.popitem()
                if pid == os.getpid():
                    pools.close()
                else:
                    _leave_to_parent(pools)
        super().close()


class PrivateAmqp(_Amqp):
    """Publisher, monitor and control of workers for a `PublishingApp`: by the app's own pools."""

    @property
    def producer_pool(self) -> ProducerPool:
        """The producers, over the app's connections."""
        return self.app.pools.producers


class PrivatePools:
    """Connections to a broker, and producers over them, of one app alone."""

    def __init__(self, connection: Any, limit: int) -> None:
        self.connections: Any = _Connections(connection, limit)
        self.producers: Any = _Producers(self.connections, limit=limit)

    def close(self) -> None:
        """Close what is idle now, and the rest when its use ends."""
        self.connections.close()


class _Connections(_Pool):
    # kombu would close a child's by a shutdown of the socket, which is the parent's as well.
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
    # py-amqp waits for a confirmation, which a silent broker does not send.
    with suppress(Exception):
        connection._close()  # noqa: SLF001 - close() of a pooled connection gives it back


def _leave_to_parent(pools: PrivatePools | None) -> None:
    """Drop another process's connections: the file descriptors here, without a word to the broker.

    redis-py's do so by themselves when they are forgotten; py-amqp would shut the parent's connection down.
    """
    if pools is None:
        return
    for connection in (*pools.connections._dirty, *pools.connections._resource.queue):  # noqa: SLF001
        established = None if isinstance(connection, lazy) else connection._connection  # noqa: SLF001
        socket = getattr(getattr(established, "_transport", None), "sock", None)  # of py-amqp alone
        if socket is not None:
            socket.close()
