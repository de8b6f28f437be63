"""TLS to RabbitMQ for an application's own Celery app, by the options of a URL: py-amqp does not know them."""

from __future__ import annotations

import logging
from typing import Any, Final

from celery import Celery

from api_client.config.broker import connection_settings


def translate_amqps_tls_options(app: Celery) -> None:
    """Let an app connect by ``amqps://…?ssl_ca_certs=FILE``, as readers do: certificate and name are checked then.

    Such a URL may be CELERY_BROKER_URL or a setting of the app; without this no connection comes about. Every other URL
    goes to Celery as it is.
    """
    connect = app.amqp.Connection

    def connection(url: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(url, str) and url.startswith("amqps://") and "ssl_" in url.partition("?")[2]:
            told = connection_settings(url)
            url, options["ssl"] = told["broker_url"], told["broker_use_ssl"]
        return connect(url, *args, **options)

    app.amqp.Connection = connection


# The driver's shows each query with its params; that of Celery's pools shows each message as it came.
_SHOW_PARAMS: Final = ("neo4j", "celery.pool")


def redact_debug_loggers() -> None:
    """Let those loggers begin at INFO. One whose level somebody has set is left as it is: that was meant."""
    for name in _SHOW_PARAMS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
