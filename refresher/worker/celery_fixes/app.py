"""Fixes of a whole app: readers' broker URLs, no params in debug logs, no decompression."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from celery import Celery
from kombu import compression

from api_client.config.broker_url import connection_settings, sentinel_options

_TRANSLATED: Final = re.compile(r"rediss?\+sentinel://|unix://|amqps://.*\?.*ssl_")
# The driver's logger shows each query with its params, that of Celery's pools each raw message.
_SHOW_PARAMS: Final = ("neo4j", "celery.pool")


def translate_broker_urls(app: Celery) -> None:
    """Make an app accept the URLs of CACHE_BROKER_URL that Celery does not know.

    These are ``redis+sentinel://…``, ``unix://…`` and ``amqps://…?ssl_ca_certs=FILE``, whose certificate and name are
    then checked. Such a URL may be CELERY_BROKER_URL or a setting of the app. All other URLs go to Celery unchanged.
    """
    connect = app.amqp.Connection

    def connection(url: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(url, str) and _TRANSLATED.match(url):
            options["transport_options"] = {**(options.get("transport_options") or {}), **sentinel_options(url)}
            settings = connection_settings(url)
            url, options["ssl"] = settings["broker_url"], settings.get("broker_use_ssl", False)
        return connect(url, *args, **options)

    app.amqp.Connection = connection


def redact_debug_loggers() -> None:
    """Set loggers that show params to INFO, unless their level has already been set."""
    for name in _SHOW_PARAMS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def remove_decompressors() -> None:
    """Remove kombu's decompressors from this process, which only refreshes, since refreshes are never compressed.

    kombu expands a message before anyone can look at it. Without a decoder the message carries an error in place of its
    content.
    """
    compression._decoders.clear()  # noqa: SLF001 - there is no public way
