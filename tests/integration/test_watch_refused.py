"""Errors of a watch that the graph refuses, or that could not clean up."""

from __future__ import annotations

from typing import Any, Self

import pytest
from neo4j.exceptions import Forbidden, ServiceUnavailable

from api_client import ReaderSettings
from refresher.checker.monitor import WatchFailed, _remove, watch
from refresher.embedded import RedisServer


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
        watch(ReaderSettings(redis_url=redis_server.url(0)), driver, None, span_seconds=1, reads_per_second=1)


def test_nodes_that_can_t_be_removed_are_named() -> None:
    class Gone:
        def session(self, **_: object) -> object:
            raise ServiceUnavailable("gone")

    driver: Any = Gone()
    with pytest.raises(WatchFailed, match=r"gone; what is left to do: MATCH .* IN \['run-0'\] DELETE"):
        _remove(driver, None, ["run-0"])
