"""kombu's Redis transport behind Sentinels, with the cache's rules for asking Sentinels and leaving a master.

kombu's own transport follows redis-py, where a connection stays while it works. A master that is cut off from its
Sentinels would keep its publishers and workers, while later ones connect to another master.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError

from api_client.transport.connection_maker import resolve_by
from api_client.transport.redis_py import MasterPool
from api_client.transport.sentinel import MasterAddress, SentinelResolver

if TYPE_CHECKING:

    class _Channel:
        """The part of kombu's channel class in use here, which has no types."""

        client: Any
        _sentinel_manager: Any
        connection: Any
        master_name: str
        sentinel_kwargs: dict[str, Any]
        from_transport_options: tuple[str, ...]

        def _connparams(self, asynchronous: bool = False) -> dict[str, Any]: ...  # noqa: FBT001, FBT002
        def _brpop_start(self, timeout: float | None = None) -> None: ...

    class _Transport:
        """The part of kombu's transport class in use here."""
else:
    _Channel, _Transport = kombu_redis.SentinelChannel, kombu_redis.SentinelTransport

# For all Sentinels. The worker's main process waits this long once a second, or every five if none answers.
ASK_SECONDS: Final = 0.5


class SentinelChannel(_Channel):
    """A channel to the master. Its option ``sentinels`` lists the Sentinels' addresses as host and port."""

    from_transport_options: tuple[str, ...] = (*_Channel.from_transport_options, "sentinels")
    sentinels: list[list[Any]]

    def _sentinel_managed_pool(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 - kombu's
        pool = MasterPool(**self._connparams(asynchronous))
        pool.resolver = self._sentinel_manager = self._resolver  # kombu closes the resolver with the pools
        resolve_by(pool, self._resolver, pool.connection_class)
        return pool

    @cached_property
    def _resolver(self) -> SentinelResolver:
        tls = self.connection.client.ssl
        options = {**self.sentinel_kwargs, **({"ssl": True, **tls} if tls else {})}
        members = [(str(host), int(port)) for host, port in self.sentinels]
        return SentinelResolver(MasterAddress(), self.master_name, members, options, timeout_seconds=ASK_SECONDS)

    def _brpop_start(self, timeout: float | None = None) -> None:
        # A BRPOP keeps waiting on its connection as long as that works.
        self._resolver.poll()
        listening = self.client.connection
        if self._resolver.has_moved_from((listening.host, listening.port)):
            raise ConnectionError("the Sentinels name another master")
        super()._brpop_start(timeout)


class SentinelTransport(_Transport):
    """kombu's transport with `SentinelChannel`, named by `api_client.config.broker_url.connection_settings`."""

    Channel = SentinelChannel
