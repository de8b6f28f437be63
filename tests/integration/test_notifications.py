"""Who waits is woken by what is published, and once for what was published before it could be heard."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import redis

from api_client.notifications import Notifications
from api_client.redis_edge import connect
from refresher.embedded import RedisServer
from tests.support.waiting import eventually

PATIENCE_SECONDS = 20.0


@pytest.fixture
def control(clean_redis: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(clean_redis.url()) as client:
        yield client


@pytest.fixture
def notifications(clean_redis: RedisServer) -> Iterator[Notifications]:
    made = Notifications(connect(clean_redis.url(), timeout_seconds=PATIENCE_SECONDS))
    yield made
    made.close()


def test_the_first_who_wait_are_woken_when_they_can_be_heard(notifications: Notifications) -> None:
    """A failure that is told while the connection is still being made is seen then, not at the next question."""
    woken = threading.Event()
    with notifications.listening("first", woken.set):
        assert woken.wait(PATIENCE_SECONDS)


def test_who_comes_later_is_woken_by_what_is_published_alone(
    notifications: Notifications, control: redis.Redis
) -> None:
    first, later = threading.Event(), threading.Event()
    with notifications.listening("first", first.set):
        assert first.wait(PATIENCE_SECONDS)
        first.clear()
        with notifications.listening("later", later.set):
            eventually(lambda: control.pubsub_numsub("later") == [(b"later", 1)], PATIENCE_SECONDS, "it is subscribed")
            control.publish("first", "")  # heard after what the subscription itself was answered
            assert first.wait(PATIENCE_SECONDS)
            assert not later.is_set()
            control.publish("later", "")
            assert later.wait(PATIENCE_SECONDS)
