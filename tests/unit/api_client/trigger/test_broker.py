"""The broker that a reader publishes to."""

from __future__ import annotations

import pytest

from api_client.protocol.messages import RefreshItem
from api_client.trigger.broker import CeleryBroker, monitoring_options


def test_a_reader_publishes_to_the_broker_of_its_settings_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://of-the-environment:1/0")
    app = CeleryBroker("redis://of-the-settings:2/3", "cache").app
    for connection in (app.connection(), app.connection_for_write(), app.connection_for_read()):
        assert (connection.hostname, connection.port) == ("of-the-settings", 2)


def test_monitors_show_a_refresh_by_its_query_and_without_its_params() -> None:
    shown = monitoring_options([RefreshItem(query="friends_of", params='{"name":"c4nary"}')] * 2, "cache")
    assert shown["shadow"] == "refresh friends_of"
    assert shown["argsrepr"].startswith("×2: friends_of v1 ")
    assert "c4nary" not in str(shown)
