"""TLS to RabbitMQ for an application's own Celery app, by the options of a URL: py-amqp does not know them."""

from __future__ import annotations

from typing import Any

from celery import Celery

from api_client.broker_tls import connection_settings


def understand_tls_options(app: Celery) -> None:
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
