"""A worker made with explicit settings uses these, whatever the environment says of the broker."""

from __future__ import annotations

import pytest

from refresher.embedded import free_port
from refresher.settings import WorkerSettings
from refresher.worker.app import make_app
from tests.acceptance.conftest import System
from tests.support.explicit_broker_app import BROKER


@pytest.mark.parametrize("variable", ["CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"])
def test_each_connection_leads_to_the_broker_of_the_settings(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "redis://elsewhere:1/2")
    app = make_app(WorkerSettings(broker_url="redis://127.0.0.1:6399/7"))
    connections = [
        app.connection(), app.connection_for_read(), app.connection_for_write(),
        app.connection_for_write(url="redis://elsewhere:1/2"), app.pool.connection,
    ]  # fmt: skip
    assert [(one.hostname, one.port, one.virtual_host) for one in connections] == [("127.0.0.1", 6399, "7")] * 5
    app.close()


def test_a_worker_consumes_from_the_broker_of_its_settings(system: System) -> None:
    elsewhere = {"CACHE_BROKER_URL": f"redis://127.0.0.1:{free_port()}/0", BROKER: system.env["CACHE_BROKER_URL"]}
    system.start_worker("-c", "1", app="tests.support.explicit_broker_app", **elsewhere)
    assert system.client().get("long_lived", {"key": "a"})["load"] == 1


def test_reader_and_worker_ignore_celery_broker_url_where_their_own_is_set(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f"redis://127.0.0.1:{free_port()}/0"
    monkeypatch.setenv("CELERY_BROKER_URL", elsewhere)
    system.start_worker("-c", "1", CELERY_BROKER_URL=elsewhere)
    with system.client(CELERY_BROKER_URL=elsewhere) as client:
        assert client.get("long_lived", {"key": "a"})["load"] == 1
        # A retry after a long pause is published by the worker.
        system.control.rpush("script:b", *["fail"] * 3)
        assert client.get("long_lived", {"key": "b"})["load"] == 4


def test_celery_broker_url_is_the_fallback(system: System) -> None:
    url = system.env.pop("CACHE_BROKER_URL")
    system.start_worker("-c", "1", CELERY_BROKER_URL=url)
    assert system.client(CELERY_BROKER_URL=url).get("long_lived", {"key": "a"})["load"] == 1
