"""Celery's settings for CACHE_BROKER_URL: Redis, Redis behind Sentinels or on a Unix socket, RabbitMQ; TLS for each."""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from api_client.config.redis_url import Topology, read_url

SENTINEL_TRANSPORT: Final = "redis-sentinel"
"""kombu's name of our transport, which finds and leaves masters by the same rules as the cache."""
_TRANSPORT_CLASS: Final = "api_client.trigger.sentinel_transport:SentinelTransport"
_CHECKS: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


def is_rabbitmq(broker_url: str) -> bool:
    """Return whether a broker's URL is RabbitMQ's, rather than Redis'."""
    return broker_url.startswith(("amqp", "pyamqp"))


def system_of(broker_url: str) -> str:
    """Return the broker's name in traces."""
    return "rabbitmq" if is_rabbitmq(broker_url) else "redis"


def connection_settings(broker_url: str) -> dict[str, Any]:
    """Return Celery's settings for the broker's URL and TLS; the URL is one that `broker_url_fault` accepts.

    Behind Sentinels, `sentinel_options` are needed too.
    """
    if not is_rabbitmq(broker_url):
        # From a password; kombu would split the URL there as if it were several.
        broker_url = broker_url.replace(";", "%3B")
    if broker_url.startswith("unix://"):
        path, _, database = broker_url.removeprefix("unix").partition("?db=")
        return {"broker_url": f"redis+socket{path}?virtual_host={database or 0}"}
    if _has_sentinels(broker_url):
        return _settings_behind_sentinels(broker_url)
    if broker_url.startswith("rediss://"):
        return {"broker_url": broker_url, "broker_use_ssl": _tls_of_redis(broker_url)}
    if broker_url.startswith("amqps://"):
        return _settings_of_amqps(broker_url)
    return {"broker_url": broker_url}


def sentinel_options(broker_url: str) -> dict[str, Any]:
    """Return kombu's transport options for a broker behind Sentinels, and none for other brokers."""
    if not _has_sentinels(broker_url):
        return {}
    parsed = read_url(broker_url)
    return {
        "master_name": parsed.master_name,
        "sentinels": [list(member) for member in parsed.members],
        "sentinel_kwargs": parsed.sentinel_options,
    }


def _has_sentinels(broker_url: str) -> bool:
    return read_url(broker_url).topology is Topology.SENTINEL


def _settings_behind_sentinels(broker_url: str) -> dict[str, Any]:
    from kombu.transport import TRANSPORT_ALIASES

    # Under its own name, so that the application keeps kombu's sentinel transport.
    TRANSPORT_ALIASES[SENTINEL_TRANSPORT] = _TRANSPORT_CLASS
    parsed = read_url(broker_url)
    # kombu masks the password of a single URL, but not those of its alternates.
    address = parsed.node_url.partition("://")[2].partition("?")[0]
    settings: dict[str, Any] = {"broker_url": f"{SENTINEL_TRANSPORT}://{address}"}
    return {**settings, "broker_use_ssl": _tls_of_redis(broker_url)} if parsed.uses_tls else settings


def _tls_of_redis(broker_url: str) -> dict[str, Any]:
    options = {name: value for name, value in _options(broker_url) if name.startswith("ssl_")}
    verifies, checks_name = _taken_checks(options)
    return {"ssl_cert_reqs": verifies, "ssl_check_hostname": checks_name, **options}


def _settings_of_amqps(broker_url: str) -> dict[str, Any]:
    given = _options(broker_url)
    options = {name: value for name, value in given if name.startswith("ssl_")}
    verifies, checks_name = _taken_checks(options)
    others = urlencode([(name, value) for name, value in given if not name.startswith("ssl_")])
    tls = {"cert_reqs": verifies, **{name.removeprefix("ssl_"): path for name, path in options.items()}}
    if checks_name:
        tls["server_hostname"] = None  # kombu fills in the URL's host; without the key no name is checked
    # Not with urlunsplit, which writes the vhost "/" differently.
    without_options = broker_url.partition("?")[0] + (f"?{others}" if others else "")
    return {"broker_url": without_options, "broker_use_ssl": tls}


def _options(broker_url: str) -> list[tuple[str, str]]:
    return parse_qsl(broker_url.partition("?")[2], keep_blank_values=True)


def _taken_checks(options: dict[str, str]) -> tuple[ssl.VerifyMode, bool]:
    """Take a certificate's checks out of a URL's options; return the mode, and whether the name is checked."""
    verifies = _CHECKS[options.pop("ssl_cert_reqs", "required").lower().removeprefix("cert_")]
    checks_name = options.pop("ssl_check_hostname", "true").lower() == "true" and verifies is not ssl.CERT_NONE
    return verifies, checks_name
