"""Errors of a watch that the graph refuses, or that could not clean up."""

from __future__ import annotations

from typing import Any, Self

import pytest
from neo4j.exceptions import Forbidden, ServiceUnavailable

from api_client import ReaderSettings
from refresher.checker import monitor
from refresher.checker.monitor import WatchFailed, watch
from refresher.embedded import RedisServer
from tests.support.waiting import MAX_WAIT_SECONDS


def settings_of(server: RedisServer) -> ReaderSettings:
    return ReaderSettings(redis_url=server.url(0), redis_timeout_seconds=MAX_WAIT_SECONDS)


def test_a_watch_that_may_not_write_names_the_variable_of_its_user(redis_server: RedisServer) -> None:
    class Refusing:
        def session(self, **_: object) -> Refusing:
            return self

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def run(self, *_: object, **__: object) -> None:
            raise Forbidden("no writing for readers")

    driver: Any = Refusing()
    with pytest.raises(WatchFailed, match=r"may not write to the graph .* REFRESHER_WATCH_USER"):
        watch(settings_of(redis_server), driver, None, span_seconds=1, reads_per_second=1)


def test_nodes_that_can_t_be_removed_are_named(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Leaving:
        """A graph that is gone once the nodes are created."""

        is_gone = False

        def session(self, **_: object) -> Leaving:
            if self.is_gone:
                raise ServiceUnavailable("gone")
            return self

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.is_gone = True

        def run(self, *_: object, **__: object) -> Leaving:
            return self

        def consume(self) -> None:
            pass

    monkeypatch.setattr(monitor, "FIRST_READ_SECONDS", 0.0)  # no worker is there
    driver: Any = Leaving()
    with pytest.raises(WatchFailed, match=r"gone; what is left to do: MATCH .* IN \['[0-9a-f]+-0', .*\] DELETE"):
        watch(settings_of(redis_server), driver, None, span_seconds=1, reads_per_second=1)
