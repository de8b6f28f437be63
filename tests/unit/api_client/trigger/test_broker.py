"""The broker that a reader publishes to."""

from __future__ import annotations

import pytest

from api_client.trigger.broker import CeleryBroker


def test_a_reader_publishes_to_the_broker_of_its_settings_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://of-the-environment:1/0")
    app = CeleryBroker("redis://of-the-settings:2/3", "cache").app
    for connection in (app.connection(), app.connection_for_write(), app.connection_for_read()):
        assert (connection.hostname, connection.port) == ("of-the-settings", 2)
