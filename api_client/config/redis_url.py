"""URLs of the cache and of a broker on Redis: one server, a master behind Sentinels, or a cluster. No I/O.

::

    redis://user:password@host:6379/0
    redis+sentinel://user:password@host:26379,host:26379/mymaster/0?sentinel_password=…
    redis+cluster://user:password@host:7000,host:7001

The first goes to redis-py unchanged. In the others, user, password and all options but ``sentinel_username`` and
``sentinel_password`` belong to the data nodes, and the members need not be complete. ``rediss+…`` means TLS to all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

from api_client.config.environment import without_password
from api_client.config.url_checks import is_number_of_a_port
from api_client.errors import ConfigurationError

Address: TypeAlias = tuple[str, int]
"""A host (a name or an IP address, IPv6 without brackets) and a port."""

SENTINEL_PORT: Final = 26_379
REDIS_PORT: Final = 6_379
_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")


class Topology(StrEnum):
    """Topology of the Redis that holds the entries."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed URL.

    Attributes:
        node_url: the URL from which redis-py makes the options of a data node's connections. Except for SINGLE, its
            host and port are the first member's and have to be replaced.
        members: the Sentinels, or some nodes of the cluster.
        master_name: the Sentinels' name of the master; otherwise empty.
        sentinel_options: user and password for the Sentinels themselves.
        before_host, after_port: the rest of ``node_url``.
    """

    topology: Topology
    node_url: str = field(repr=False)
    members: tuple[Address, ...] = ()
    master_name: str = ""
    sentinel_options: dict[str, str] = field(default_factory=dict, repr=False)
    before_host: str = field(default="", repr=False)
    after_port: str = field(default="", repr=False)

    def url_of(self, node: Address) -> str:
        """Return the URL of one node of a cluster."""
        host, port = node
        return f"{self.before_host}{f'[{host}]' if ':' in host else quote(host)}:{port}{self.after_port}"

    @property
    def uses_tls(self) -> bool:
        """True if all connections use TLS."""
        return self.node_url.startswith("rediss")


def read_url(url: str, variable: str = "CACHE_REDIS_URL") -> RedisUrl:
    """Parse a URL; for a single Redis only the topology, since redis-py parses the rest.

    Args:
        url: the URL of the cache, or of a broker on Redis, which is no cluster.
        variable: the name of the setting, for errors.

    Raises:
        ConfigurationError: the URL names no members or no master, or a database of a cluster.
    """
    try:
        return _read(url)
    except _Malformed as error:
        raise ConfigurationError(variable, f"'{without_password(url)}'", f"expected {error}") from None


class _Malformed(ValueError):
    """The URL can't be used; the text states the allowed form."""


def _read(url: str) -> RedisUrl:
    scheme, _, rest = url.partition("://")
    base, plus, kind = scheme.lower().partition("+")
    if not plus:
        return RedisUrl(Topology.SINGLE, url)
    if base not in {"redis", "rediss"} or kind not in {Topology.SENTINEL, Topology.CLUSTER}:
        raise _Malformed("redis+sentinel://…, redis+cluster://…, or the same with rediss")
    before_query, _, query = rest.partition("#")[0].partition("?")
    authority, _, path = before_query.partition("/")
    user, at, hosts = authority.rpartition("@")
    topology = Topology(kind)
    members = tuple(_member(text, topology) for text in hosts.split(","))
    options = dict(parse_qsl(query, keep_blank_values=True))
    sentinel_options = {
        name.removeprefix("sentinel_"): options.pop(name) for name in _SENTINEL_OPTIONS if name in options
    }
    if topology is Topology.CLUSTER:
        master_name, database = "", path.strip("/")
        if (database or "0", options.pop("db", "0") or "0", sentinel_options) != ("0", "0", {}):
            raise _Malformed("no database and no Sentinel's password: a cluster has one database, 0")
    else:
        master_name, database = _master_and_database(path)
    before, after = f"{base}://{user}{at}", f"/{database}" + (f"?{urlencode(options)}" if options else "")
    first = RedisUrl(topology, "", members, master_name, sentinel_options, before, after)
    return replace(first, node_url=first.url_of(members[0]))


def _member(text: str, topology: Topology) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(SENTINEL_PORT if topology is Topology.SENTINEL else REDIS_PORT)
    host = unquote(host.removeprefix("[").removesuffix("]"))
    if not host or not is_number_of_a_port(port):
        raise _Malformed(
            "host:port,host:port… after ://, user and password before an @, special characters in them encoded"
        )
    return host, int(port)


def _master_and_database(path: str) -> tuple[str, str]:
    name, _, database = path.partition("/")
    if not name:
        raise _Malformed(
            "the name that the Sentinels have for the master after the hosts: …:26379/mymaster, or …/mymaster/0"
        )
    if database.strip("/") and not database.strip("/").isdecimal():
        raise _Malformed("a number of a database after the master's name: …:26379/mymaster/0")
    return unquote(name), database.strip("/")
