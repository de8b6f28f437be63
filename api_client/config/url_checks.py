"""Checks of the servers' URLs, for all faults that show before anything is sent.

redis-py and kombu notice them at the first connection at the earliest: they take a database that is not a number for 0,
and a wrong port or an unknown option makes each command fail.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

MAX_PORT: Final = 65_535

Options: TypeAlias = Mapping[str, str]
"""The allowed options of a URL: name → pattern of the value; `FILE` and `FOLDER` have to exist."""

FILE: Final = "FILE"
FOLDER: Final = "FOLDER"
TLS: Final[Options] = {
    "ssl_ca_certs": FILE,
    "ssl_certfile": FILE,
    "ssl_keyfile": FILE,
    "ssl_cert_reqs": "(?i:(cert_)?(required|optional|none))",
    "ssl_check_hostname": "(?i:true|false)",
}
_IN_WORDS: Final = {
    "db": "the number of a database",
    "client_name": "printable characters without a space",
    "ssl_cert_reqs": "required, optional or none",
    "ssl_check_hostname": "true or false",
    "heartbeat": "whole seconds",
    "login_method": "PLAIN, AMQPLAIN or EXTERNAL",
}
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_NOT_IN_URLS: Final = re.compile(r"[\x00-\x20\x7f]")
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\],;]+)(?::([0-9]{1,5}))?")
_END_OF_AUTHORITY: Final = re.compile("[/?#]")
_DATABASE: Final = re.compile("/?|/[0-9]{1,6}/?")
_ANY_PATH: Final = re.compile(".*")
_REDIS: Final[Options] = {"db": "[0-9]{1,6}", "username": ".+", "password": ".+", "client_name": "[!-~]+"}
_TLS_OF_CACHE: Final[Options] = {**TLS, "ssl_ca_path": FOLDER, "ssl_password": ".+"}
_SENTINEL: Final[Options] = {"sentinel_username": ".+", "sentinel_password": ".+"}
_RABBITMQ: Final[Options] = {"heartbeat": "[0-9]{1,4}", "login_method": "PLAIN|AMQPLAIN|EXTERNAL"}
ENCODED: Final = "special characters in user and password percent-encoded"
ADDRESS: Final = f"host or host:port, port 1 to {MAX_PORT}"


def cache_url_fault(url: str) -> str | None:
    """Return the allowed form if this CACHE_REDIS_URL has a fault that shows without connecting, otherwise None.

    For Sentinels and clusters, `redis_url.read_url` checks the part after the hosts.
    """
    scheme = url.partition(":")[0]
    options = {**_REDIS, **(_TLS_OF_CACHE if scheme.startswith("rediss") else {})}
    if "+" in scheme:
        return _fault(url, {**options, **_SENTINEL}, several_hosts=True, path=_ANY_PATH)
    if "?" in url and url.partition("?")[0].rpartition("/")[2].isdecimal() and scheme != "unix":
        del options["db"]  # it is in the path
    return _fault(url, options)


def broker_url_fault(url: str) -> str | None:
    """Return the allowed form if this broker's URL has a fault that shows without connecting, otherwise None.

    For RabbitMQ without TLS there may be several URLs, separated by semicolons and tried one after another. For
    Sentinels, `redis_url.read_url` checks the part after the hosts.
    """
    scheme = url.partition(":")[0]
    if scheme == "unix":
        return _fault(url, {"db": _REDIS["db"]})
    if scheme.startswith("redis"):
        tls = TLS if scheme.startswith("rediss") else {}
        if "+" in scheme:
            return _fault(url, {**tls, **_SENTINEL}, several_hosts=True, path=_ANY_PATH)
        return _fault(url, tls)
    several = url.split(";")
    if len(several) > 1 and not all(one.startswith(("amqp://", "pyamqp://")) for one in several):
        return "one URL; several, separated by semicolons, only where each begins with amqp://"
    options = {**_RABBITMQ, **(TLS if scheme == "amqps" else {})}
    return next(filter(None, (_fault(one, options, path=_ANY_PATH) for one in several)), None)


def _fault(url: str, options: Options, *, several_hosts: bool = False, path: re.Pattern[str] = _DATABASE) -> str | None:
    try:
        parts = split_url(url)
    except ValueError:
        return f"an address that can be read: {ADDRESS}, IPv6 in brackets, {ENCODED}"
    if _NOT_IN_URLS.search(url) or "#" in url or "@" in parts.path or not _is_encoded(url):
        return f"a URL with {ENCODED}: no space, no #, and a % only before two hexadecimal digits"
    hosts = parts.netloc.rpartition("@")[2]
    if parts.scheme == "unix":
        if hosts or len(parts.path) < len("/x"):
            return "unix:///path/of/the/socket, with ?db=N for a database"
    elif not all(_is_address(host) for host in (hosts.split(",") if several_hosts else [hosts])):
        return f"{ADDRESS}, after user and password and an @"
    elif not path.fullmatch(parts.path):
        return "the number of a database after the host, as in redis://host:6379/0"
    return _options_fault(parts.query, options)


def split_url(url: str) -> SplitResult:
    """Split a URL as `urlsplit` does, but allow several hosts, separated by commas.

    Python since 3.11.12, 3.12.9 and 3.13.2 refuses several hosts if one is an IPv6 address in brackets.

    Raises:
        ValueError: a host is malformed.
    """
    scheme, _, rest = url.partition("://")
    authority = _END_OF_AUTHORITY.split(rest, maxsplit=1)[0]
    user, at, hosts = authority.rpartition("@")
    if "," not in hosts:
        return urlsplit(url)
    after = rest[len(authority) :]
    first, *_ = [urlsplit(f"{scheme}://{user}{at}{host}{after}") for host in hosts.split(",")]
    return first._replace(netloc=authority)


def is_number_of_a_port(text: str) -> bool:
    """Return whether ``text`` is a port from 1 to 65535 in decimal digits."""
    return re.fullmatch("[0-9]{1,5}", text) is not None and 0 < int(text) <= MAX_PORT


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and (found[2] is None or is_number_of_a_port(found[2]))


def _is_encoded(url: str) -> bool:
    try:
        unquote(url, errors="strict")
    except UnicodeDecodeError:
        return False
    return _BAD_ESCAPE.search(url) is None


def is_file(path: str) -> bool:
    """Return whether a file exists; False for a name that is too long, for which pathlib would raise."""
    return os.path.isfile(path)  # noqa: PTH113


def _options_fault(query: str, allowed: Options) -> str | None:
    given = parse_qsl(query, keep_blank_values=True)
    if query and not allowed:
        return "no option after a ?"
    # Never the given text, since it may be the end of a password with a ? in it.
    if len(dict(given)) < len(given) or not dict(given).keys() <= allowed.keys():
        return f"no option but {', '.join(allowed)}, each once"
    for name, value in given:
        match allowed[name]:
            case "FILE" if not is_file(value):
                return f"a file (PEM) that is there for {name}"
            case "FOLDER" if not os.path.isdir(value):  # noqa: PTH112 - as is_file
                return f"a folder that is there for {name}"
            case "FILE" | "FOLDER":
                pass
            case pattern if not re.fullmatch(pattern, value):
                return f"{_IN_WORDS.get(name, 'a value')} for {name}"
    return None if given or not query else "options as name=value after the ?"
