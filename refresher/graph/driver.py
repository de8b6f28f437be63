"""Creation of the graph's driver: address, TLS and timeouts."""

from __future__ import annotations

from typing import Any, Final

import neo4j

from api_client.config.environment import without_password
from api_client.errors import ConfigurationError
from refresher.settings import NEO4J_URI_ALLOWED, WorkerSettings

SPARE_CONNECTIONS: Final = 22
"""More than CACHE_XFETCH_WORKERS, because Celery's -c may ask for more threads."""


def open_driver(
    settings: WorkerSettings, user: str = "", password: str = "", *, retry_seconds: float = 0
) -> neo4j.Driver:
    """Return a driver for the settings' graph; nothing is sent yet.

    Args:
        settings: the worker's settings, with the graph's address.
        user, password: credentials, by default those of NEO4J_USER; without a password none are sent.
        retry_seconds: the time for which the driver itself repeats a managed transaction.

    Raises:
        ConfigurationError: the driver refuses NEO4J_URI.
    """
    uri, tls = address_of(settings)
    if not user:
        user, password = settings.neo4j_user, settings.neo4j_password
    try:
        # The driver's own retries are off, since ours would multiply with them (5 tries of 33 s each by default).
        return neo4j.GraphDatabase.driver(
            uri,
            auth=(user, password) if password else None,
            max_transaction_retry_time=retry_seconds,
            connection_timeout=2,
            connection_acquisition_timeout=3,
            liveness_check_timeout=5,
            connection_write_timeout=5,
            max_connection_pool_size=settings.workers + SPARE_CONNECTIONS,
            keep_alive=True,
            **tls,
        )
    except Exception as error:  # noqa: BLE001 - whatever it is: its text and its cause show the URI as it stands
        kind = type(error).__name__
    raise ConfigurationError(
        "NEO4J_URI",
        f"'{without_password(settings.neo4j_uri)}'",
        f"the driver refuses it ({kind}); expected {NEO4J_URI_ALLOWED}",
    )


def address_of(settings: WorkerSettings) -> tuple[str, dict[str, Any]]:
    """Return NEO4J_URI in the driver's form, and the driver's TLS options."""
    if not settings.neo4j_ca_certs:
        return settings.neo4j_uri, {}
    # With custom certificates the driver takes TLS only from options, and refuses +s.
    trusted = neo4j.TrustCustomCAs(settings.neo4j_ca_certs)
    return settings.neo4j_uri.replace("+s://", "://", 1), {"encrypted": True, "trusted_certificates": trusted}
