"""Fixes of a whole app: TLS to RabbitMQ by the options of a URL, no params in debug logs, no decompression."""

from __future__ import annotations

import logging
from typing import Any, Final

from celery import Celery
from kombu import compression

from api_client.config.broker import connection_settings

# The driver's shows each query with its params; that of Celery's pools shows each message as it came.
_SHOW_PARAMS: Final = ("neo4j", "celery.pool")


def translate_amqps_tls_options(app: Celery) -> None:
    """Let an app connect by ``amqps://…?ssl_ca_certs=FILE``, as readers do: certificate and name are checked then.

    Such a URL may be CELERY_BROKER_URL or a setting of the app. Every other URL goes to Celery as it is.
    """
    connect = app.amqp.Connection

    def connection(url: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(url, str) and url.startswith("amqps://") and "ssl_" in url.partition("?")[2]:
            settings = connection_settings(url)
            url, options["ssl"] = settings["broker_url"], settings["broker_use_ssl"]
        return connect(url, *args, **options)

    app.amqp.Connection = connection


def redact_debug_loggers() -> None:
    """Let loggers that show params begin at INFO; one whose level has been set keeps it."""
    for name in _SHOW_PARAMS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def remove_decompressors() -> None:
    """Remove kombu's decompressors from this process, which does nothing but refresh: refreshes are never compressed.

    kombu expands a message before anyone can look at it. Without its decoder it carries an error in place of content.
    """
    compression._decoders.clear()  # noqa: SLF001 - there is no public way
