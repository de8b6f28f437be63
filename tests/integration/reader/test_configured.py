"""`configure`: settings and events of the default clients, sync and async, given in code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from api_client import CachedQuery, ConfigurationError, ReaderSettings, aget_cached, configure, get_cached
from api_client import default as default_client
from refresher.embedded import free_port
from tests.integration.reader.conftest import NewKey
from tests.support.event_recorder import EventRecorder
from tests.support.internals import default_clients
from tests.support.waiting import MAX_WAIT_SECONDS


@pytest.fixture(autouse=True)
def _another_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No client yet, and variables that lead nowhere."""
    for variable in ("CACHE_REDIS_URL", "CACHE_BROKER_URL"):
        monkeypatch.setenv(variable, f"redis://127.0.0.1:{free_port()}/0")
    for name in ("_client", "_async_client", "_settings", "_events"):
        monkeypatch.setattr(default_client, name, None)
    yield
    client, async_client = default_clients()
    if client is not None:
        client.close()
    if async_client is not None:
        async_client.close_threads()


def test_the_default_clients_use_the_settings_and_events_of_the_last_configure_call(
    settings: dict[str, Any], new_key: NewKey
) -> None:
    new_key().store_value("v")
    events = EventRecorder()
    configure(ReaderSettings(**settings | {"namespace": "another"}))
    configure(ReaderSettings(**settings), events=events)
    assert get_cached("q") == "v"
    assert CachedQuery("q", returns=str)() == "v"
    assert asyncio.run(aget_cached("q")) == "v"
    assert default_client.default_client().settings.redis_timeout_seconds == MAX_WAIT_SECONDS
    assert len(events["hit"]) == 3


def test_configure_without_settings_uses_the_environment(
    settings: dict[str, Any], new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_key().store_value("v")
    monkeypatch.setenv("CACHE_REDIS_URL", settings["redis_url"])
    monkeypatch.setenv("CACHE_NAMESPACE", settings["namespace"])
    monkeypatch.setenv("CACHE_REDIS_TIMEOUT", f"{MAX_WAIT_SECONDS}s")
    configure(ReaderSettings(redis_url=settings["redis_url"], namespace="another"))
    configure()
    assert get_cached("q") == "v"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_configure_after_the_first_read_is_refused(settings: dict[str, Any], new_key: NewKey, kind: str) -> None:
    new_key().store_value("v")
    configure(ReaderSettings(**settings))
    assert (get_cached("q") if kind == "sync" else asyncio.run(aget_cached("q"))) == "v"
    with pytest.raises(ConfigurationError, match=r"^configure\(\)=after the first read is not valid: call it before"):
        configure(ReaderSettings(**settings))


def test_configure_refuses_anything_but_reader_settings() -> None:
    with pytest.raises(ConfigurationError, match=r"^settings=<str> is not valid: expected a ReaderSettings"):
        configure("redis://127.0.0.1:6379/0")  # type: ignore[arg-type]
